/* ticks: the processor's own clock, which costs a few nanoseconds to read.                          floor: os
 *
 * It is wall time: it goes on while the thread does not run. On a processor without a clock that programs may read,
 * ticks are those of CLOCK_MONOTONIC_RAW. Threads: any. */
#ifndef TSLAB_OS_TICKS_H
#define TSLAB_OS_TICKS_H

#include "os/os.h"
#include <stdatomic.h>

/* ticks_fence waits until all earlier instructions are done, and lets no later one begin. */
#if defined(__x86_64__)
INLINE uint64_t ticks_now(void) { return __builtin_ia32_rdtsc(); }
INLINE void ticks_fence(void) { __builtin_ia32_lfence(); }
#elif defined(__aarch64__)
INLINE uint64_t ticks_now(void) {
  uint64_t now;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
}
INLINE void ticks_fence(void) { __asm__ volatile("isb" : : : "memory"); }
#else
INLINE uint64_t ticks_now(void) { return os_now_raw_ns(); }
INLINE void ticks_fence(void) {}
#endif

/* For measuring a few nanoseconds: call ticks_begin before the code and ticks_end after it. */
INLINE uint64_t ticks_end(void) {
  ticks_fence();
  return ticks_now();
}
INLINE uint64_t ticks_begin(void) {
  uint64_t now = ticks_end();
  ticks_fence();
  return now;
}

/* The process's start calls ticks_start first and ticks_compare_at_start last. Both read CLOCK_MONOTONIC_RAW by system
 * calls, so that a process that does little has no page of libc's clocks in memory. ticks_compare compares the ticks
 * with that clock again: each time that twice as many ticks have passed, until about a second has passed. */
HIDDEN void ticks_start(void);
HIDDEN void ticks_compare_at_start(void);
HIDDEN void ticks_compare(void);

extern HIDDEN _Atomic uint64_t ticks_scale; /* nanoseconds a tick, times 2^32; 0 until the first comparison */
extern HIDDEN _Atomic uint64_t ticks_due;   /* when to compare again */

INLINE void ticks_calibrate(uint64_t now) {
  if (now >= atomic_load_explicit(&ticks_due, memory_order_relaxed)) ticks_compare();
}

INLINE uint64_t ticks_to_ns(uint64_t ticks) {
  uint64_t scale = atomic_load_explicit(&ticks_scale, memory_order_relaxed);
  return (uint64_t)((unsigned __int128)ticks * scale >> 32);
}

/* Returns the time of that tick on CLOCK_MONOTONIC_RAW. */
HIDDEN uint64_t ticks_at_ns(uint64_t ticks);

#endif
