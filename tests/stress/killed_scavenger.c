/* killed_scavenger: a seccomp filter ends the thread that makes a certain system call, and not the process. That thread
 * is the scavenger. A call that ends the scavenger must not wait for a thread that is gone. */
#include "filter.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

enum { BLOCKS = 64, BYTES = 60000 };

static unsigned threads(void) { /* not by the system call that the filter forbids */
  struct statx status;
  CHECK(statx(AT_FDCWD, "/proc/self/task", 0, STATX_NLINK, &status) == 0);
  return status.stx_nlink - 2;
}

static void start_scavenger(void) {
  for (int i = 0; i < BLOCKS || threads() == 1; i++) {
    void *block = malloc(BYTES);
    CHECK(block != NULL);
    memset(block, 1, BYTES);
    if (i >= BLOCKS) free(block), usleep(1000);
  }
}

int main(void) {
  alarm(60);
  start_scavenger();
  /* Publication looks at its file. */
  if (filter_call(SYS_newfstatat, SECCOMP_RET_KILL_THREAD, SECCOMP_FILTER_FLAG_TSYNC) != 0) return 77;
  while (threads() != 1) free(malloc(BYTES)), usleep(1000);
  for (int i = 0; i < 2; i++) CHECK(unshare(-1) == -1 && errno == EINVAL);
  free(malloc(BYTES));
  return 0;
}
