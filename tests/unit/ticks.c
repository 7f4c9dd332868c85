/* ticks: never go back, agree with CLOCK_MONOTONIC_RAW after the first comparison, and are compared again only when
 * twice as many have passed. The test compares two clocks; it asserts no duration. */
#include "unit.h"

#include "os/ticks.h"
#include <pthread.h>

enum { THREADS = 4, LOOKS = 20000 / TEST_SCALE, PAUSES = 5 };

static void never_back(void) {
  uint64_t last = ticks_end();
  for (int i = 0; i < LOOKS; i++) {
    const uint64_t now = ticks_end();
    CHECK_COUNT(now, >=, last);
    last = now;
  }
}

/* The time between two ticks lies between the clock's values around them, apart from the error of the scale at the last
   comparison: a thousandth is far more than this error after a few milliseconds. */
static void agrees_with_the_clock(void) {
  const uint64_t before = os_now_raw_ns(), first = ticks_begin(), inside = os_now_raw_ns();
  usleep(20000);
  const uint64_t inside_end = os_now_raw_ns(), last = ticks_end(), after = os_now_raw_ns();
  const uint64_t ns = ticks_to_ns(last - first), least = inside_end - inside, most = after - before;
  CHECK_COUNT(ns, >=, least - least / 1000);
  CHECK_COUNT(ns, <=, most + most / 1000);
}

static void compared_by_doubling(void) {
  unsigned compared = 0;
  uint64_t due = ticks_due;
  CHECK_COUNT(ticks_due, <, UINT64_MAX);
  for (int i = 0; i < LOOKS; i++) {
    const uint64_t now = ticks_now();
    ticks_calibrate(now);
    CHECK_COUNT(ticks_due, >=, due);
    if (ticks_due == due) continue;
    CHECK_COUNT(now, >=, due); /* not before it was time */
    CHECK(ticks_scale != 0);
    compared++;
    due = ticks_due;
  }
  CHECK_COUNT(compared, <=, 64); /* each comparison after twice the time since the start */
  ticks_calibrate(due - 1);
  CHECK_COUNT(ticks_due, ==, due);
  ticks_calibrate(due); /* as if the next comparison were due */
  CHECK_COUNT(ticks_due, !=, due);
}

static void *compare(void *unused) {
  for (int i = 0; i < LOOKS / THREADS; i++) ticks_compare();
  return unused;
}

static void by_several_threads(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, compare, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  agrees_with_the_clock();
}

/* After a second the scale is known well enough for good. */
static void known_in_the_end(void) {
  while (ticks_due != UINT64_MAX) {
    usleep(100000);
    ticks_compare();
  }
  const uint64_t scale = ticks_scale;
  ticks_calibrate(ticks_now());
  CHECK_COUNT(ticks_scale, ==, scale);
  agrees_with_the_clock();
}

/* At the end of a process's start, after a slow call perhaps, the scale is known for a while. */
static void known_at_the_start(void) {
  const uint64_t now = ticks_now();
  ticks_calibrate(now);
  ticks_compare_at_start();
  CHECK(ticks_scale != 0);
  CHECK_COUNT(ticks_due, >, now);
  CHECK_COUNT(ticks_due, <, UINT64_MAX);
  const uint64_t due = ticks_due;
  ticks_calibrate(due - 1);
  CHECK_COUNT(ticks_due, ==, due);
}

int main(void) {
  os_start();
  ticks_start();
  never_back();
  CHECK_COUNT(ticks_to_ns(0), ==, 0);
  known_at_the_start();
  compared_by_doubling();
  usleep(5000);
  ticks_compare();
  for (int i = 0; i < PAUSES; i++) agrees_with_the_clock();
  by_several_threads();
  known_in_the_end();
  return 0;
}
