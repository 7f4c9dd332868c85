/* limit_signals: a signal handler limits the process's address space while the thread is anywhere in malloc. The
 * process goes on. */
#include "../check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>

#define TURNS  300
#define BLOCKS 40
#define SIGNALS_LEAST 100

static volatile sig_atomic_t signals;

static void limit_address_space(int unused) {
  (void)unused;
  const int kept = errno;
  const struct rlimit limit = {(rlim_t)1 << 40, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) == 0) signals++;
  errno = kept;
}

int main(void) {
  CHECK(signal(SIGALRM, limit_address_space) != SIG_ERR);
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 200}, {0, 200}}, NULL) == 0);
  for (int turn = 0; turn < TURNS || signals < SIGNALS_LEAST; turn++) {
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) blocks[i] = malloc(300000 + i * 70000);
    for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  }
  return 0;
}
