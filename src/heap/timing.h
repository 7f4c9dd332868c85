/* timing: measures how long calls take, and why.                                                    floor: heap
 *
 * The library times every call that leaves the fast path, with two exceptions: a free whose list has room and that only
 * counts calls, and a free of a large block that its thread keeps. Two clock reads would cost more than these do. A
 * histogram lacks the time before the first clock read, which is a slow path's first step, and after the last one,
 * which only counts the call itself.
 *
 * Of the calls that the fast path serves, the library times one in about options.sample. Each class of a heap, and the
 * chunks of a thread's epochs, draw how many mallocs pass until the next sample. After these a visit, which counts
 * exactly, detaches the list for a moment. The next malloc finds an empty list, and a slow path times it and serves it
 * from that list. Slow calls have a countdown of their own. So each class, and the fast path, are sampled in their true
 * shares, without an instruction on the fast path.
 *
 * A sample has its wall time. For one slow sample in options.sample_cpu (0: for none) the kernel also says how long the
 * thread ran meanwhile; the rest of the time it waited. A short fast call has not waited.
 *
 * Threads: a thread counts in its own counters; all threads share labels and the newest samples, which are atomic. */
#ifndef TSLAB_HEAP_TIMING_H
#define TSLAB_HEAP_TIMING_H

#include "heap/heap.h"

#ifndef TSLAB_TELEMETRY
/* 0: builds without the telemetry_sources of CMakeLists.txt, to prove that the fast path is the same. */
#define TSLAB_TELEMETRY 1
#endif

struct sample { /* all uint64_t: a row of stats/tables.c */
  uint64_t number, at_ns, thread_id, requested, usable, wall_ns, cpu_ns, lock_wait_ns, path, label;
};
#define SAMPLE_NO_CPU   UINT64_MAX
#define SAMPLE_NO_LABEL UINT64_MAX
#define SAMPLES_KEPT    512 /* a power of two */

/* A slow call under way. */
struct timing {
  uint64_t start, cpu;
  bool sampled, takes_cpu;
};

/* Nanoseconds; the last bucket has no bound. */
INLINE uint64_t bucket_bound(unsigned bucket) {
  if (bucket >= BUCKETS - 1) return UINT64_MAX;
  return bucket % 2 ? (uint64_t)11585 << (bucket / 2) >> 10 : (uint64_t)8 << (bucket / 2); /* steps of 2^(1/2) */
}

#if TSLAB_TELEMETRY

extern HIDDEN const char path_names[PATHS][16];

HIDDEN COLD void timing_draw(struct timing *timing, struct counters *counters);

/* Enclose a slow malloc. `usable` is 0 if there was no memory. */
INLINE void timing_begin(struct timing *timing) {
  timing->start = ticks_now();
  struct counters *counters = counters_here();
  counters->stages = 0;
  counters->waited = 0;
  timing->sampled = timing->takes_cpu = false;
  if (UNLIKELY(counters->slow_countdown-- <= 1)) timing_draw(timing, counters);
}
HIDDEN void timing_end(const struct timing *timing, size_t requested, size_t usable);

/* Enclose all other timed calls, of which only the path is counted. */
INLINE void timing_begin_path(struct timing *timing) { timing->start = ticks_now(); }
HIDDEN void timing_end_path(const struct timing *timing, enum path path);

/* timing_count counts the timings that wait for it; timing_flush calls it if there are any. Thread: the heap's. */
HIDDEN void timing_count(struct heap *heap);
INLINE void timing_flush(struct heap *heap) {
  if (heap->sampling.timings) timing_count(heap);
}

/* Counts timed mallocs that the fast path, or a chunk, served from `heap`. */
HIDDEN void timing_count_fast(const struct heap *heap, const struct timed *timed, unsigned count);

/* Returns the times of all threads. */
HIDDEN struct path_times timing_times(enum path path);

/* Copies the newest samples, at most `most`, in the order of their numbers. Returns how many. */
HIDDEN size_t samples_copy(struct sample *out, size_t most);

#else

INLINE void timing_begin(struct timing *timing) { (void)timing, counters_here()->stages = 0; }
INLINE void timing_end(const struct timing *timing, size_t requested, size_t usable) {
  (void)timing, (void)requested, (void)usable;
}
INLINE void timing_begin_path(struct timing *timing) { (void)timing; }
INLINE void timing_end_path(const struct timing *timing, enum path path) { (void)timing, (void)path; }
INLINE void timing_count(struct heap *heap) { (void)heap; }
INLINE void timing_flush(struct heap *heap) { (void)heap; }
INLINE size_t samples_copy(struct sample *out, size_t most) { return (void)out, (void)most, 0; }

#endif
#endif
