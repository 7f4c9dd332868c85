/* guard: places sampled blocks between pages that nobody may touch.                                 floor: heap
 *
 * With TSLAB_GUARD=BYTES about one in BYTES that the program allocates lies in a pool of slots:
 *
 *   slot:  | no access | fill | block | fill | no access |      one or more pages in the middle can be used
 *
 * The block lies at the start of these pages or at their end, by chance. So an access beyond either end of it faults
 * half of the time. The other half changes the fill, and the free of the block looks at that. After the free nobody
 * may touch its pages until the slot is used again. The slot that was freed first is used first.
 *
 * A guarded block stands in front of another one, the block behind, which the heap handed out as if there were no
 * guard. The program does not use the block behind. That one is the sample of the heap profile, and its epoch counts,
 * charges, reports and gives it up. The library frees it when the program frees the guarded block. When its epoch ends
 * it, the guarded block ends, too.
 *
 *   UNUSED -> TAKEN -> LIVE -> ENDING -> FREED -> TAKEN ...
 *
 * Memory: GUARD_SLOTS slots, of which one call site has at most GUARD_SITE_MOST, and GUARD_BYTES_MOST of pages in use.
 * Where the kernel guards pages without mappings for them (Linux 6.13) the pool is one mapping; else two for each block
 * in use.
 *
 * Threads: guard_lock, an innermost one, protects the list of free slots. A thread ends a block by a compare-and-swap,
 * and then has its slot alone. The handler only reads. */
#ifndef TSLAB_HEAP_GUARD_H
#define TSLAB_HEAP_GUARD_H

#include "heap/profile.h"

#define GUARD_SLOTS      256
#define GUARD_SITE_MOST  (GUARD_SLOTS / 8)
#define GUARD_BYTES_MOST (4 * MiB)

struct guard_totals {
  uint64_t placed, live, refused, bytes; /* since the start; now; since the start; now, of pages in use */
};

#if TSLAB_TELEMETRY

HIDDEN extern _Atomic uint32_t guard_interval; /* BYTES; 0: no guards */
HIDDEN extern struct lock guard_lock;

INLINE bool guard_is_on(void) {
  return UNLIKELY(atomic_load_explicit(&guard_interval, memory_order_relaxed) != 0);
}

/* Called once, before there is a second thread. Returns false without memory, or if the kernel forbids no pages. */
HIDDEN bool guard_start(uint32_t interval);

/* The block of `bytes` bytes, of which the program asked for `size`, is a new sample that was drawn by the interval of
 * the profile. Returns the block that the program gets: one in front of it, or itself. Caller holds no lock. */
HIDDEN void *guard_draw(const struct heap *heap, void *block, size_t size, size_t bytes, uint32_t interval);
INLINE void *guard_sample(const struct heap *heap, void *block, size_t size, size_t bytes, uint32_t interval) {
  return guard_is_on() ? guard_draw(heap, block, size, bytes, interval) : block;
}

/* Returns a block of `size` bytes in front of `behind`, which the heap has just handed out for that call, or `behind`
 * if there is no slot for it. `alignment` is at least 16. Caller holds no lock. */
struct guard_call {
  const uintptr_t *frames;
  unsigned depth;
  uint32_t label; /* of its epoch; 0: none */
};
HIDDEN void *guard_place(void *behind, size_t size, size_t alignment, const struct guard_call *call);

/* Each takes a pointer into the pool, whose run is RUN_GUARDED. guard_starts_live returns true if a block in use starts
 * there. guard_size returns its size, as the program asked for it. guard_refuse tells what p is instead. */
HIDDEN bool guard_starts_live(const void *p);
HIDDEN size_t guard_size(const void *p);
HIDDEN COLD void guard_refuse(const char *call, const void *p);

/* Ends a block for the call with that frame. Returns the block behind, which the caller frees, or NULL if another call
 * has ended the block, which it has told then. */
HIDDEN void *guard_free(void *p, const void *frame);

/* Ends the guarded blocks whose blocks behind lie there, because their epoch gives these up. */
HIDDEN void guard_ends(const void *start, size_t bytes);

/* Returns the block behind the one that p lies in; p if that is not guarded; NULL if it is freed. Async-signal-safe. */
HIDDEN const void *guard_look_behind(const void *p);
INLINE const void *guard_behind(const void *p) { return guard_is_on() ? guard_look_behind(p) : p; }

/* Returns the block that the program has, for the one behind. */
HIDDEN void *guard_look_in_front(void *behind);
INLINE void *guard_in_front(void *behind) { return guard_is_on() ? guard_look_in_front(behind) : behind; }

HIDDEN struct guard_totals guard_totals(void);
INLINE void guard_visit_lock(void (*visit)(struct lock *)) { visit(&guard_lock); }

#else

INLINE bool guard_is_on(void) { return false; }
INLINE bool guard_start(uint32_t interval) { return (void)interval, false; }
INLINE void *guard_sample(const struct heap *heap, void *block, size_t size, size_t bytes, uint32_t interval) {
  return (void)heap, (void)size, (void)bytes, (void)interval, block;
}
INLINE void guard_ends(const void *start, size_t bytes) { (void)start, (void)bytes; }
INLINE bool guard_starts_live(const void *p) { return (void)p, false; }
INLINE size_t guard_size(const void *p) { return (void)p, 0; }
INLINE void guard_refuse(const char *call, const void *p) { (void)call, (void)p; }
INLINE void *guard_free(void *p, const void *frame) { return (void)p, (void)frame, NULL; }
INLINE const void *guard_behind(const void *p) { return p; }
INLINE void *guard_in_front(void *behind) { return behind; }
INLINE void guard_visit_lock(void (*visit)(struct lock *)) { (void)visit; }

#endif
#endif
