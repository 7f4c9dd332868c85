/* occupied: a program under a limit of addresses or of locked memory maps a page directly behind each mapping that
 * /proc/self/maps shows, so also where the heap and its tables would grow next. The heap still grows, and those pages
 * keep their contents. */
#include "memory.h"
#include "occupy.h"

#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static void fill(size_t size, size_t bytes) {
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, size, bytes), >=, bytes);
  free_list(&list);
}

static void use(size_t in_epoch) {
  fill(100000, 96 * MIB);
  fill(100, 8 * MIB);
  fill(100 * MIB, 100 * MIB);
  const tslab_epoch epoch = tslab_epoch_open("occupied");
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  fill(100, in_epoch);
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
}

static void set_limit(size_t bytes) { CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, RLIM_INFINITY}) == 0); }

static void limited(void) { set_limit(4096 * MIB); }
static void limited_once(void) {
  set_limit(64 * MIB);
  set_limit(RLIM_INFINITY);
}
static void locked(void) {
  if (mlockall(MCL_CURRENT) != 0) _exit(SKIPPED);
}

static pid_t start(void (*begin)(void)) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child != 0) return child;
  begin();
  for (int i = 0; i < 2; i++) {
    occupy();
    use(i == 0 ? MIB : 64 * MIB); /* then the tables for epochs have mappings that are occupied, too */
  }
  occupied_are_kept();
  _exit(0);
}

static void nothing(void) {}

/* argv[1]: this process was born under a limit. */
int main(int argc, char **argv) {
  free(malloc(100));
  if (argc > 1) return child_passed(start(nothing)) ? 0 : 1;
  CHECK(child_passed(start(limited)));
  CHECK(child_passed(start(limited_once)));
  if (!child_passed(start(locked))) printf("mlockall is not allowed here\n");
  set_limit(4096 * MIB);
  execv("/proc/self/exe", (char *[]){argv[0], "again", NULL});
  CHECK(!"execv");
}
