/* environments: the mixed workload, and what the environment is about, where a program has little: address space,
 * writable memory, locked memory, a control group's memory, threads, descriptors, stack, system calls, /proc, /dev/shm.
 *
 *   environments [long]    all, at the same time; long: those too that wait for minutes
 *   environments NAME      one: sets it up and starts itself in it, for the library reads some of it at its start */
#include "workload.h"

#include "../check.h"
#include "../stress/filter.h"
#include "../stress/memory.h"

#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

static tslab_stats_global stats_now(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  return stats;
}

static void rest(long milliseconds) {
  const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static void skip(const char *why) {
  dprintf(1, "skipped: %s\n", why);
  exit(SKIPPED);
}

/* ---- shared by several ------------------------------------------------------------------------------------------- */

/* Frees more than the scavenger lets lie, and waits until it has given that back, without another call. */
static void check_scavenger(void) {
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 100000, 24 * MIB), >=, 24 * MIB);
  free_list(&list);
  for (int i = 0; i < 600 && stats_now().free_dirty_bytes > MIB; i++) rest(50);
  CHECK_COUNT(stats_now().free_dirty_bytes, <=, MIB);
}

/* Slow paths are visited from the second second on, in which a process is published for the first time. */
static void outlive_publishing(void) {
  for (int i = 0; i < 14; i++) {
    void *list = NULL;
    rest(100);
    CHECK_COUNT(fill_list(&list, 3000, MIB), >=, MIB);
    free_list(&list);
  }
}

/* Until there is no more, in blocks of one size; then all of it again, for what a refused call had taken is back. */
static void exhaust(tslab_epoch e, size_t size, size_t least) {
  size_t bytes = 0;
  for (int round = 0; round < 2; round++) {
    void *list = NULL;
    CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
    errno = 0;
    bytes = fill_list(&list, size, 512 * MIB);
    CHECK_COUNT(errno, ==, ENOMEM);
    CHECK_COUNT(bytes, >=, least);
    void *const more = tslab_calloc(1, 64 * MIB);
    CHECK(more == NULL && errno == ENOMEM);
    CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
    if (e && round == 1) {
      CHECK_COUNT(tslab_epoch_reset(e, NULL), ==, 0);
    } else {
      free_list(&list);
    }
  }
}

/* Grows a block, which moves, until realloc fails. The block keeps its contents. */
static void grow_until_refused(size_t least) {
  size_t size = 512 << 10;
  unsigned char *block = tslab_malloc(size), *grown;
  CHECK(block != NULL);
  memset(block, 0x51, size);
  void *const obstacle = tslab_malloc(100000);
  while (size < 512 * MIB && (grown = tslab_realloc(block, size + size / 2)) != NULL) {
    block = grown;
    memset(block + size, 0x51, size / 2);
    size += size / 2;
  }
  CHECK_COUNT(errno, ==, ENOMEM);
  CHECK_COUNT(size, >=, least);
  CHECK(block[0] == 0x51 && memcmp(block, block + 1, size - 1) == 0);
  tslab_free(block);
  tslab_free(obstacle);
}

static bool is_refused(void) { return true; }

static void check_exhaustion(size_t least) {
  CHECK_COUNT(work_run(2, WORK_THREADS | WORK_FORK), ==, 0); /* and the model has room of its own from now on */
  static const size_t sizes[] = {112, 100000};
  const tslab_epoch_options wanted = {sizeof wanted, "exhausted", 0, 0, TSLAB_EPOCH_DESTROYABLE, 0};
  const tslab_epoch e = tslab_epoch_open_with(&wanted);
  CHECK(e != 0);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    exhaust(0, sizes[i], least);
    exhaust(e, sizes[i], least);
  }
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
  grow_until_refused(least / 6);
  /* The workload beside a list that leaves next to nothing: it is refused now and then, and loses nothing. */
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 50000, 512 * MIB), <, 512 * MIB);
  work_may_fail = is_refused;
  CHECK_COUNT(work_run(3, WORK_FORK), >, 0);
  work_may_fail = NULL;
  free_list(&list);
  CHECK_COUNT(work_run(4, WORK_THREADS | WORK_FORK), ==, 0);
}

static void limit(int what, rlim_t soft) {
  struct rlimit now;
  CHECK(getrlimit(what, &now) == 0);
  now.rlim_cur = soft;
  if (setrlimit(what, &now) != 0) skip("the limit is lower already");
}

/* Limits on what a user has do not hold for the superuser. */
static void become_nobody(void) {
  if (geteuid() != 0) return;
  if (setgroups(0, NULL) != 0 || setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
    skip("the user cannot be changed");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The model has a table for each 4 GiB that the heap lies in; a second one would take what the limit leaves. */
static void stay_in_one_table(const char *name) {
  void *const block = tslab_malloc(1);
  const bool crosses = (uint32_t)(uintptr_t)block > UINT32_MAX - 512 * MIB;
  tslab_free(block);
  if (crosses) execl("/proc/self/exe", "environments", name, "inside", NULL);
}

static void limit_address_space(void) { limit(RLIMIT_AS, 256 * MIB); }
static void in_little_address_space(void) {
  stay_in_one_table("address_space");
  check_exhaustion(128 * MIB);
}

/* Strict overcommit is the machine's, not a process's, and not a test's to turn on. A limit on writable private memory
 * refuses the same calls in the same places of the kernel: mprotect that makes memory writable, mmap of writable
 * memory, and mremap, after it has unmapped the destination. */
static void limit_data(void) { limit(RLIMIT_DATA, 160 * MIB); }
static void in_little_writable_memory(void) {
  stay_in_one_table("overcommit");
  check_exhaustion(80 * MIB);
}

/* Resident bytes of the process that are not locked. */
static size_t resident_unlocked(void) {
  char text[4096], *line;
  const int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0);
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  CHECK(length > 0);
  text[length] = 0;
  CHECK((line = strstr(text, "\nAnonymous:")) != NULL);
  const size_t anonymous = strtoul(line + 11, NULL, 10) << 10;
  CHECK((line = strstr(text, "\nLocked:")) != NULL);
  const size_t locked = strtoul(line + 8, NULL, 10) << 10;
  return anonymous > locked ? anonymous - locked : 0;
}

static void in_locked_memory(void) {
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) skip("mlockall is not allowed here");
  CHECK_COUNT(work_run(1, WORK_ALL), ==, 0);
  tslab_purge();
  const size_t before = resident_bytes();
  CHECK_COUNT(stats_now().purge_failures, ==, 0);
  /* A block that moved is locked where it is, and what takes its old place too. */
  void *first = tslab_malloc(MIB), *const obstacle = tslab_malloc(MIB);
  CHECK(first && obstacle);
  memset(first, 1, MIB);
  first = tslab_realloc(first, 24 * MIB);
  CHECK(first != NULL);
  memset(first, 1, 24 * MIB);
  void *const second = tslab_malloc(MIB);
  CHECK(second != NULL);
  memset(second, 1, MIB);
  CHECK_COUNT(resident_unlocked(), ==, 0);
  tslab_free(first);
  tslab_free(second);
  tslab_free(obstacle);
  check_scavenger();
  tslab_purge();
  CHECK_COUNT(resident_bytes(), <=, before + 4 * MIB);
  CHECK_COUNT(stats_now().purge_failures, ==, 0);
}

/* Runs as a user who may lock little memory: the memory that is mapped from now on must not exceed the limit. */
static void in_little_locked_memory(void) {
  CHECK_COUNT(work_run(1, WORK_ALL), ==, 0);
  limit(RLIMIT_MEMLOCK, 4 * MIB);
  become_nobody();
  if (mlockall(MCL_FUTURE) != 0) skip("mlockall is not allowed here");
  void *const refused = mmap(NULL, 64 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(refused == MAP_FAILED && errno == EAGAIN);
  CHECK_COUNT(work_run(2, WORK_FORK), ==, 0);
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 5 * MIB, 100 * MIB), >=, 100 * MIB); /* from what was reserved before */
  free_list(&list);
}

/* ---- a control group --------------------------------------------------------------------------------------------- */

static char group[PATH_MAX]; /* of our own; "": none yet */
static bool group_is_v2;

static void write_group(const char *directory, const char *name, const char *text) {
  char path[2 * PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  const bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
  if (file >= 0) close(file);
  if (done) return;
  if (group[0]) rmdir(group);
  skip("a control group's memory cannot be limited here");
}

static size_t read_group(const char *name) {
  char path[2 * PATH_MAX], text[64] = "";
  snprintf(path, sizeof path, "%s/%s", group, name);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
  close(file);
  return strtoull(text, NULL, 10);
}

/* Where the hierarchy with memory is mounted, and which group of it this process is in. */
static bool find_group(char *found, size_t size) {
  char line[PATH_MAX], mounted[PATH_MAX] = "", own[PATH_MAX] = "";
  FILE *file = fopen("/proc/self/cgroup", "re");
  for (bool has_v1 = false; file && !has_v1 && fgets(line, sizeof line, file);) {
    char *const controllers = strchr(line, ':');
    char *const path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) continue;
    *path = 0;
    path[strcspn(path + 1, "\n") + 1] = 0;
    has_v1 = strstr(controllers, "memory") != NULL;
    if (has_v1 || strncmp(line, "0:", 2) == 0) {
      snprintf(own, sizeof own, "%s", path + 1);
      group_is_v2 = !has_v1;
    }
  }
  if (file) fclose(file);
  file = fopen("/proc/self/mounts", "re");
  while (file && fgets(line, sizeof line, file)) {
    char where[PATH_MAX], kind[64], options[1024];
    if (sscanf(line, "%*s %4095s %63s %1023s", where, kind, options) != 3) continue;
    const bool right = group_is_v2 ? strcmp(kind, "cgroup2") == 0
                                   : strcmp(kind, "cgroup") == 0 && strstr(options, "memory") != NULL;
    if (right) snprintf(mounted, sizeof mounted, "%s", where);
  }
  if (file) fclose(file);
  snprintf(found, size, "%s%s", mounted, strcmp(own, "/") == 0 ? "" : own);
  return mounted[0] && own[0];
}

static void use_group(void) {
  CHECK_COUNT(work_run(1, WORK_ALL), ==, 0);
  tslab_purge();
  const char *const usage = group_is_v2 ? "memory.current" : "memory.usage_in_bytes";
  const size_t before = read_group(usage);
  /* More than the limit in all, so each time what was freed or closed must have gone back, or serve again. */
  for (int round = 0; round < 6; round++) {
    static const size_t sizes[] = {100, 3000, 200000};
    const size_t size = sizes[round % 3];
    void *list = NULL;
    const tslab_epoch e = round < 3 ? 0 : tslab_epoch_open("group");
    CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
    CHECK_COUNT(fill_list(&list, size, 40 * MIB), >=, 40 * MIB);
    CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
    CHECK_COUNT(read_group(usage), >=, before + 32 * MIB);
    free_list(&list);
    if (e) CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
    else tslab_malloc_trim(0);
    CHECK_COUNT(read_group(usage), <=, before + 4 * MIB);
  }
}

static void in_a_group(void) {
  char parent[PATH_MAX / 2], number[32];
  if (!find_group(parent, sizeof parent)) skip("no control group with memory is mounted");
  snprintf(group, sizeof group, "%s/tslab-%d", parent, (int)getpid());
  if (mkdir(group, 0700) != 0) {
    group[0] = 0;
    skip("no control group can be made");
  }
  write_group(group, group_is_v2 ? "memory.max" : "memory.limit_in_bytes", "67108864");
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(number, sizeof number, "%d", (int)getpid());
    write_group(group, "cgroup.procs", number);
    use_group();
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  for (int i = 0; i < 100 && rmdir(group) != 0; i++) rest(20); /* a moment after its last process */
  if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) exit(SKIPPED);
  CHECK_COUNT(status, ==, 0);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void own_mounts(void) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    skip("no mount namespace can be made");
}

static void hide_proc(void) {
  own_mounts();
  while (umount2("/proc", MNT_DETACH) == 0) {}
  if (access("/proc/self", F_OK) == 0) skip("/proc stays");
}

static void without_proc(void) {
  CHECK_COUNT(work_run(1, WORK_ALL), ==, 0);
  CHECK_COUNT(stats_now().resident_bytes, ==, 0);
  tslab_epoch_report report;
  const tslab_epoch e = tslab_epoch_open(NULL);
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  CHECK_COUNT(report.rss_before + report.rss_after, ==, 0);
  outlive_publishing();
  check_scavenger();
}

static void hide_shm(void) {
  own_mounts();
  if (mount("none", "/dev", "tmpfs", MS_RDONLY, "size=4k") != 0) skip("/dev cannot be covered");
  CHECK(access("/dev/shm", F_OK) != 0);
}

static void without_shm(void) {
  CHECK_COUNT(work_run(1, WORK_ALL), ==, 0);
  outlive_publishing();
  check_scavenger();
}

static void without_descriptors(void) {
  limit(RLIMIT_NOFILE, 0);
  CHECK(dup(1) < 0 && errno == EMFILE);
  CHECK_COUNT(work_run(1, WORK_ALL), ==, 0);
  CHECK_COUNT(stats_now().resident_bytes, ==, 0);
  outlive_publishing();
  check_scavenger();
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *nothing(void *unused) { return unused; }

static bool can_make_thread(void) {
  pthread_t thread;
  const int error = pthread_create(&thread, NULL, nothing, NULL);
  if (error == 0) CHECK(pthread_join(thread, NULL) == 0);
  return error == 0;
}

/* Not before it starts: nobody may not be allowed to read where this program lies. */
static void forbid_threads(void) {
  become_nobody();
  limit(RLIMIT_NPROC, 0);
}

static void without_threads(void) {
  forbid_threads();
  CHECK(!can_make_thread());
  CHECK_COUNT(work_run(1, 0), ==, 0);
  outlive_publishing();
  /* No scavenger runs, so only calls give memory back, and this much may lie free. */
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 100000, 100 * MIB), >=, 100 * MIB);
  free_list(&list);
  CHECK_COUNT(stats_now().free_dirty_bytes, <=, 33 * MIB);
}

/* Some time after there could be no thread there is one. */
static void without_threads_for_a_while(void) {
  forbid_threads();
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 100000, 8 * MIB), >=, 8 * MIB);
  free_list(&list);
  CHECK(!can_make_thread());
  struct rlimit now;
  CHECK(getrlimit(RLIMIT_NPROC, &now) == 0);
  limit(RLIMIT_NPROC, now.rlim_max);
  for (int i = 0; i < 130 && stats_now().free_dirty_bytes > MIB; i++) {
    CHECK_COUNT(fill_list(&list, 100000, 8 * MIB), >=, 8 * MIB);
    free_list(&list);
    rest(1000); /* and a second unused */
  }
  check_scavenger();
}

static void little_stack(void) { limit(RLIMIT_STACK, 64 << 10); }

static void *work_on_least_stack(void *unused) {
  void *list = NULL;
  for (size_t size = 10; size < 4 * MIB; size *= 5) CHECK_COUNT(fill_list(&list, size, 4 * MIB), >=, 4 * MIB);
  const tslab_epoch e = tslab_epoch_open("small");
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  void *const block = tslab_malloc(100);
  CHECK(block != NULL);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  tslab_free(block);
  free_list(&list);
  tslab_purge();
  return unused;
}

/* Threads' stacks are as large as the limit too; one has the least that there is. */
static void on_little_stack(void) {
  CHECK_COUNT(work_run(1, WORK_ALL), ==, 0);
  pthread_attr_t least;
  pthread_t thread;
  CHECK(pthread_attr_init(&least) == 0 && pthread_attr_setstacksize(&least, (size_t)PTHREAD_STACK_MIN) == 0);
  CHECK(pthread_create(&thread, &least, work_on_least_stack, NULL) == 0 && pthread_join(thread, NULL) == 0);
  check_scavenger();
}

/* ---- a filter ---------------------------------------------------------------------------------------------------- */

static void filter(const int more[FILTER_MORE]) {
  if (!install_filter(0, more)) skip("seccomp is not allowed here");
}

static void under_a_filter(void) {
  filter((const int[FILTER_MORE]){SYS_clone, SYS_wait4, -1}); /* the program forks and waits */
  CHECK_COUNT(work_run(1, WORK_FORK), ==, 0);
  outlive_publishing();
  CHECK_COUNT(work_run(2, WORK_FORK), ==, 0);
  CHECK_COUNT(stats_now().purge_failures, ==, 0);
  tslab_purge();
  CHECK_COUNT(stats_now().free_dirty_bytes, <=, MIB);
}

static void under_a_filter_with_threads(void) {
  filter((const int[FILTER_MORE]){SYS_clone, SYS_wait4, SYS_clone3, SYS_rseq, -1}); /* and makes threads */
  CHECK(can_make_thread());
  CHECK_COUNT(work_run(1, WORK_ALL), ==, 0);
  outlive_publishing();
  CHECK_COUNT(work_run(2, WORK_ALL), ==, 0);
  check_scavenger();
  CHECK_COUNT(stats_now().purge_failures, ==, 0);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static const struct environment {
  const char *name;
  void (*prepare)(void); /* sets the limits that a process inherits */
  void (*use)(void);
  bool takes_minutes;
} environments[] = {
    {"address_space", limit_address_space, in_little_address_space, false},
    {"overcommit", limit_data, in_little_writable_memory, false},
    {"locked", NULL, in_locked_memory, false},
    {"memlock", NULL, in_little_locked_memory, false},
    {"cgroup", NULL, in_a_group, false},
    {"no_proc", hide_proc, without_proc, false},
    {"no_shm", hide_shm, without_shm, false},
    {"no_files", NULL, without_descriptors, false},
    {"no_threads", NULL, without_threads, false},
    {"stack", little_stack, on_little_stack, false},
    {"filter", NULL, under_a_filter, false},
    {"filter_threads", NULL, under_a_filter_with_threads, false},
    {"threads_later", NULL, without_threads_for_a_while, true},
};

enum { ENVIRONMENTS = sizeof environments / sizeof *environments };

static void set_up_and_start(const struct environment *e) {
  char self[PATH_MAX] = "";
  CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  setenv("TSLAB_REPORT_RSS", "1", 1);
  if (e->prepare) e->prepare();
  execv(self, (char *[]){self, (char *)(uintptr_t)e->name, "inside", NULL});
  CHECK(!"execv");
}

static int run_all(bool is_long) {
  pid_t children[ENVIRONMENTS] = {0};
  unsigned failed = 0, skipped = 0, ran = 0;
  for (unsigned i = 0; i < ENVIRONMENTS; i++) {
    if (environments[i].takes_minutes && !is_long) continue;
    CHECK((children[i] = fork()) >= 0);
    if (children[i] == 0) set_up_and_start(&environments[i]);
  }
  for (unsigned i = 0; i < ENVIRONMENTS; i++) {
    int status;
    if (children[i] == 0) continue;
    CHECK(waitpid(children[i], &status, 0) == children[i]);
    ran++;
    const bool was_skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
    skipped += was_skipped;
    failed += status != 0 && !was_skipped;
    printf("%-14s %s\n", environments[i].name, status == 0 ? "passed" : was_skipped ? "skipped" : "FAILED");
    if (WIFSIGNALED(status)) printf("%-14s signal %d\n", "", WTERMSIG(status));
  }
  return failed ? 1 : skipped == ran ? SKIPPED : 0;
}

int main(int argc, char **argv) {
  if (argc == 1 || strcmp(argv[1], "long") == 0) return run_all(argc > 1);
  for (unsigned i = 0; i < ENVIRONMENTS; i++) {
    if (strcmp(environments[i].name, argv[1]) != 0) continue;
    if (argc == 2) set_up_and_start(&environments[i]);
    environments[i].use();
    return 0;
  }
  CHECK(!"a name of the table");
}
