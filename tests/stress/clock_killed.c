/* clock_killed: a seccomp filter ends the process at the system call clock_gettime, like a filter for a program without
 * clocks. libc's clock_gettime reads the kernel's page and makes no call. The library goes on under such a filter: slow
 * calls, samples, epochs, threads, and the scavenger, which publishes. */
#include "filter.h"
#include "memory.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

/* For all threads of the process. False: not allowed here. */
static bool kill_for_clock_gettime(void) {
  return filter_call(SYS_clock_gettime, SECCOMP_RET_KILL_PROCESS, SECCOMP_FILTER_FLAG_TSYNC) == 0;
}

/* Every size, large ones too, for longer than the second after which a process is published for the first time. */
static void use_heap(uint64_t random) {
  static const size_t sizes[] = {16, 100, 3000, 30000, 200000, (size_t)3 << 20};
  struct timespec start, now;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &start) == 0);
  do {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      void *list = NULL;
      CHECK_COUNT(fill_list(&list, sizes[i] + check_random(&random) % 16, 4 * MIB), >=, 4 * MIB);
      free_list(&list);
    }
    tslab_epoch_report report;
    const tslab_epoch e = tslab_epoch_open("clockless");
    CHECK(tslab_epoch_enter(e) == 0);
    for (int i = 0; i < 2000; i++) tslab_free(tslab_malloc(500));
    CHECK(tslab_epoch_leave(e) == 0);
    CHECK(tslab_epoch_close(e, &report) == 0);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  } while (now.tv_sec - start.tv_sec < 4);
}

static void *work(void *argument) {
  use_heap((uintptr_t)argument);
  return NULL;
}

static int under_the_filter(void) {
  void *list = NULL; /* the process is warm: a scavenger was started, a second has not gone by */
  CHECK_COUNT(fill_list(&list, 3000, 8 * MIB), >=, 8 * MIB);
  free_list(&list);
  if (!kill_for_clock_gettime()) return SKIPPED;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, work, (void *)1) == 0);
  use_heap(2);
  CHECK(pthread_join(thread, NULL) == 0);
  tslab_purge();
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.returned_bytes, >, 0);
  return 0;
}

/* Where libc's clocks are system calls, the filter leaves no program a clock. */
static int look_at_clocks(void) {
  struct timespec now;
  if (!kill_for_clock_gettime()) return SKIPPED;
  return clock_gettime(CLOCK_MONOTONIC_RAW, &now) + clock_gettime(CLOCK_MONOTONIC, &now);
}

static int in_a_child(int (*does)(void)) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) exit(does());
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

int main(void) {
  const int clocks = in_a_child(look_at_clocks);
  if (!WIFEXITED(clocks) || WEXITSTATUS(clocks) != 0) {
    printf("skipped: no filters, or no clocks without a system call here\n");
    return SKIPPED;
  }
  const int status = in_a_child(under_the_filter);
  if (WIFSIGNALED(status)) dprintf(1, "the library made the system call clock_gettime: signal %d\n", WTERMSIG(status));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}
