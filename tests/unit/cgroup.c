/* cgroup: reads the files of control groups of version 2, which the test makes under a root of its own. */
#include "unit.h"

#include "os/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>

static char root[64], self[96];

static void put(const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
  close(file);
}

static void make_folder(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  CHECK(mkdir(path, 0700) == 0);
}

static struct cgroup_memory look(void) {
  struct cgroup_memory found;
  CHECK(cgroup_read(self, root, &found));
  return found;
}

static void nothing_is_no_limit(void) {
  put("self", "0::/\n");
  CHECK(look().max.bytes == UINT64_MAX && look().high.bytes == UINT64_MAX && look().stalled == 0);
  put("memory.max", "max\n");
  CHECK(look().max.bytes == UINT64_MAX);
}

static void the_tightest_of_all_groups_above_holds(void) {
  make_folder("a"), make_folder("a/b");
  put("self", "12:memory:/docker\n1:name=systemd:/x\n0::/a/b\n");
  put("a/memory.max", "1000000\n"), put("a/b/memory.max", "2000000\n");
  put("a/memory.high", "max\n"), put("a/b/memory.high", "500000\n");
  put("a/memory.stat", "anon 300\nfile 5000\nkernel 20\nkernel_stack 7\nshmem 4\n");
  put("a/b/memory.stat", "file 1\nanon 200\nanon_thp 9\n");
  CHECK_COUNT(look().max.bytes, ==, 1000000);
  CHECK_COUNT(look().max.in_use, ==, 324);
  CHECK_COUNT(look().high.bytes, ==, 500000);
  CHECK_COUNT(look().high.in_use, ==, 200);
  put("self", "0::/a/b/gone/as/well\n");
  CHECK_COUNT(look().max.bytes, ==, 1000000);
}

static void a_group_outside_of_the_mount_is_its_root(void) {
  put("self", "0::/../other\n"), put("memory.max", "700000\n");
  CHECK_COUNT(look().max.bytes, ==, 700000);
  put("self", "0::/\n");
  CHECK_COUNT(look().max.bytes, ==, 700000);
}

static void pressure_is_read(void) {
  put("memory.pressure", "some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0.00\n");
  CHECK_COUNT(look().stalled, ==, 1234);
  put("memory.pressure", "some avg10=0.07 avg60=0.00\n");
  CHECK_COUNT(look().stalled, ==, 7);
  put("memory.pressure", "nonsense\n");
  CHECK_COUNT(look().stalled, ==, 0);
}

static void other_versions_are_ignored(void) {
  struct cgroup_memory found;
  put("self", "4:memory:/docker/0::/x\n");
  CHECK(!cgroup_read(self, root, &found) && found.max.bytes == UINT64_MAX);
  CHECK(!cgroup_read("/nothing/there", root, &found));
}

int main(void) {
  os_start();
  strcpy(root, "/tmp/tslab-cgroup-XXXXXX");
  CHECK(mkdtemp(root) != NULL);
  snprintf(self, sizeof self, "%s/self", root);
  nothing_is_no_limit();
  the_tightest_of_all_groups_above_holds();
  a_group_outside_of_the_mount_is_its_root();
  pressure_is_read();
  other_versions_are_ignored();
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", root);
  return system(command) == 0 ? 0 : 1;
}
