/* no_sequences: after start a filter refuses restartable sequences, with the errors that sandboxes use. glibc would end
 * the process when a thread starts, so the library makes none, and gives memory back without it. */
#include "filter.h"
#include "memory.h"

#include <sys/wait.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

static void refuse_and_free(uint32_t error) {
  if (!answer_with(SYS_rseq, error)) _exit(SKIPPED);
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 100000, 64 * MIB), >=, 64 * MIB);
  free_list(&list);
  /* Long enough for a thread to have started. */
  clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 100000000}, NULL);
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.free_dirty_bytes, <=, 33 * MIB);
}

static void try_error(int error) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    refuse_and_free((uint32_t)error);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
    printf("skipped: seccomp is not allowed here\n");
    exit(SKIPPED);
  }
  CHECK_COUNT(status, ==, 0);
}

int main(void) {
  tslab_free(tslab_malloc(10));
  try_error(EPERM);
  try_error(ENOSYS);
  return 0;
}
