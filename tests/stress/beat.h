/* beat.h: SIGALRM at a steady pace. */
#ifndef TSLAB_TESTS_BEAT_H
#define TSLAB_TESTS_BEAT_H

#include "../check.h"

#include <sys/time.h>

/* 0: no more. */
static void beat(long microseconds) {
  const struct timeval period = {0, microseconds};
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){period, period}, NULL) == 0);
}

#endif
