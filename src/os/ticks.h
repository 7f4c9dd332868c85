/* ticks: the processor's own clock, which costs a few nanoseconds to read.                          floor: os
 *
 * Wall time: it goes on while the thread does not run. Where the processor has none that programs may read, it is
 * CLOCK_MONOTONIC_RAW. Threads: any. */
#ifndef TSLAB_OS_TICKS_H
#define TSLAB_OS_TICKS_H

#include "os/os.h"
#include <stdatomic.h>

/* ticks_fence waits until what came before in the program is done, and lets nothing begin that comes after. */
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

/* For measuring what takes only a few nanoseconds itself: ticks_begin before it, ticks_end after it. */
INLINE uint64_t ticks_end(void) {
  ticks_fence();
  return ticks_now();
}
INLINE uint64_t ticks_begin(void) {
  uint64_t now = ticks_end();
  ticks_fence();
  return now;
}

/* The first two belong to the begin and the end of the process's start, and read CLOCK_MONOTONIC_RAW by system calls,
 * so that a process that does little has no page of libc's clocks in memory. ticks_compare compares ticks with that
 * clock again, whenever it is convenient: each time that twice as many ticks have gone by, until it was a second or
 * so. */
HIDDEN void ticks_start(void);
HIDDEN void ticks_compare_at_start(void);
HIDDEN void ticks_compare(void);

extern HIDDEN _Atomic uint64_t ticks_scale; /* nanoseconds a tick, times 2^32; 0 until there is any */
extern HIDDEN _Atomic uint64_t ticks_due;   /* when to compare again */

INLINE void ticks_calibrate(uint64_t now) {
  if (now >= atomic_load_explicit(&ticks_due, memory_order_relaxed)) ticks_compare();
}

INLINE uint64_t ticks_to_ns(uint64_t ticks) {
  uint64_t scale = atomic_load_explicit(&ticks_scale, memory_order_relaxed);
  return (uint64_t)((unsigned __int128)ticks * scale >> 32);
}

/* When that was, on CLOCK_MONOTONIC_RAW. */
HIDDEN uint64_t ticks_at_ns(uint64_t ticks);

#endif
