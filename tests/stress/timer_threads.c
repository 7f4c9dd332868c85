/* timer_threads: glibc's thread for timers waits for a signal that it blocks, and allocates. If that malloc makes the
 * library's thread, the signal must stay blocked. */
#include "../check.h"

#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { TICKS = 2500, PERIOD_NS = 1000000 };

static atomic_int ticks;

static void count(union sigval unused) {
  (void)unused;
  ticks++;
}

int main(void) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = count};
  const struct itimerspec period = {{0, PERIOD_NS}, {0, PERIOD_NS}};
  timer_t timer;
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  CHECK(timer_settime(timer, 0, &period, NULL) == 0);
  /* After a second the next slow path makes the library's thread. Only glibc's thread allocates here. */
  while (ticks < TICKS) usleep(10000);
  return 0;
}
