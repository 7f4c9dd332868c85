/* arena: what the heap must know of an epoch: the runs it holds and what they may cost.             floor: heap
 *
 * Every slab, chunk and large block of an epoch is in its arena's list and charged to it, and to its parents. Epoch
 * 0 has no arena: NULL stands for it, and nothing here is done for it.
 *
 * Invariant: own = bytes of the runs in the list; charged = own + what its children are charged.
 * Threads:   the list under the arena's lock, of which there are ARENA_LOCKS for all, so that fork can take them;
 *            taken after a heap's lock and before reserve_lock and pages_lock. Numbers are atomic. */
#ifndef TSLAB_HEAP_ARENA_H
#define TSLAB_HEAP_ARENA_H

#include "slab/reserve.h"

#define ARENA_LOCKS 64

/* Where memory goes that comes free: to the reserve first, in each case but the last. */
enum release_target {
  RELEASE_TO_COMMON_USE, /* then to common use: the epoch is open, or its close gives it back before it returns */
  RELEASE_TO_KERNEL,     /* then to the kernel at once: the close has returned */
  RELEASE_UNUSED_TO_KERNEL,   /* to the kernel at once: nobody used it for as long as the reserve keeps anything */
};

struct arena {
  uint32_t index;       /* what run->epoch holds; not 0 */
  uint32_t first;       /* run, by granule; next_of_epoch leads on */
  uint32_t ready;       /* runs prefaulted and not used yet, through next; charged, and not in the list */
  _Atomic bool closing; /* no new runs */
  _Atomic uint8_t release_target; /* enum release_target */
  bool by_slabs;        /* it frees what it takes, so its heaps fill no chunks: epoch/cache.h */
  bool first_of_label;           /* not reset, and none of its label has ended before, as far as is known */
  _Atomic size_t own, charged;
  _Atomic size_t spilled;  /* bytes that it gave back for common use */
  _Atomic size_t recycled, returned; /* bytes, since its closing began */
  _Atomic uint64_t refused;
  _Atomic uint64_t bumped, freed; /* heap/bump.c: blocks of chunks that were filled, and how many of these are free */
  _Atomic uint64_t large; /* blocks above the largest class that it handed out */
  uint32_t label;         /* row of heap/label.h */
  _Atomic uint32_t owned; /* by a thread that works on it outside its epoch's lock: epoch/epoch.h */
  size_t budget; /* SIZE_MAX: none */
  struct arena *parent;
  struct arena_walk *walks; /* that have not come to the end of the list; under the arena's lock */
};

/* Arenas lie in slots of this size, whose rest is the epoch's own (epoch/epoch.h). Memory of a slot is never given
 * back, so that an index always leads somewhere. */
#define ARENA_SLOT 320

/* They come in segments, each twice as long as the one before, so that an index finds its own by its logarithm. */
#define ARENA_FIRST_LOG 6
#define ARENA_SEGMENTS  (32 - ARENA_FIRST_LOG)
extern HIDDEN char *_Atomic arena_segments[ARENA_SEGMENTS];
extern HIDDEN _Atomic uint32_t arenas_so_far;

/* The slot of an index that was made. */
INLINE struct arena *arena_at(uint32_t index) {
  size_t n = index - 1 + ((size_t)1 << ARENA_FIRST_LOG);
  unsigned log = log2_floor(n);
  char *start = atomic_load_explicit(&arena_segments[log - ARENA_FIRST_LOG], memory_order_relaxed);
  return (struct arena *)(void *)(start + (n - ((size_t)1 << log)) * ARENA_SLOT);
}

/* Slots from index 1 on, all zeros but index, one by one; NULL without memory. The caller sees to it that only one
 * thread makes one at a time. */
HIDDEN struct arena *arena_make(void);
INLINE uint32_t arenas_made(void) { return atomic_load_explicit(&arenas_so_far, memory_order_acquire); }

/* Asks for `bytes` more; false when a budget is in the way. NULL arenas have no limit. */
HIDDEN bool arena_charge(struct arena *arena, size_t bytes);
HIDDEN void arena_discharge(struct arena *arena, size_t bytes);

/* The run, charged before, joins the list. */
HIDDEN void arena_add(struct arena *arena, struct run *run);

/* The run, which holds no live block and leads nowhere, leaves the list, and its memory goes to the reserve, or to
 * common use, or when that is too late to the kernel. After that the arena may end: it must not be touched.
 * `clean`: every byte reads as zero. Whether it went to the reserve. */
HIDDEN bool arena_release(struct arena *arena, struct run *run, bool clean);

/* The two halves of it, for one of many: the run is the caller's, and nothing is discharged before
 * arena_finish_release. */
HIDDEN void arena_unlist(struct arena *arena, struct run *run);
HIDDEN void arena_return(struct arena *arena, struct run *run); /* in between: to the kernel */
HIDDEN void arena_finish_release(struct arena *arena, size_t bytes);

/* Gives to the kernel as much memory as went to common use, about `most` bytes of it. Returns true if some is left. */
HIDDEN bool arena_return_spilled(struct arena *arena, size_t most);

/* Charges and makes resident `bytes`, rounded up to granules, for its first chunks. False, and nothing done, without
 * memory or budget. */
HIDDEN bool arena_prepare(struct arena *arena, size_t bytes);
HIDDEN struct run *arena_take_ready(struct arena *arena, enum run_kind kind); /* charged; NULL when none is */
HIDDEN void arena_drop_ready(struct arena *arena);
HIDDEN size_t arena_ready_bytes(const struct arena *arena);

HIDDEN void arena_lock(const struct arena *arena);
HIDDEN void arena_unlock(const struct arena *arena);

/* Under the lock: the list, for a look at its first few. NULL after the last. */
HIDDEN struct run *arena_first(const struct arena *arena);
HIDDEN struct run *arena_next(const struct run *run);

/* A walk over the whole list, whose length has no bound. The lock is held for ARENA_STEPS steps at a time; between
 * two holds runs may join the list, which the walk does not meet, and leave it.
 *
 *   for (struct run *run = arena_walk(&walk, arena); run; run = arena_walk_on(&walk, 1)) ...
 *
 * The lock is held wherever the walk has a run. arena_walk_on takes the number of steps that the last run took, and
 * returns NULL after the last run, without the lock. A walk that stops before that calls arena_walk_end. */
#define ARENA_STEPS 64
struct arena_walk {
  struct arena *arena;
  struct arena_walk *other; /* of the same arena */
  const void *thread; /* an address in its thread-local storage: one without a heap has no struct thread */
  uint32_t next; /* run, by granule */
  unsigned steps;
};
HIDDEN struct run *arena_walk(struct arena_walk *walk, struct arena *arena);
HIDDEN struct run *arena_walk_on(struct arena_walk *walk, unsigned steps);
HIDDEN void arena_walk_end(struct arena_walk *walk);

/* Steps that a look at each block of a chunk counts as: up to 10 microseconds, where other steps take less than one.
 * And a call for each block of a run, or a few system calls. So one hold takes at most ARENA_STEPS_MOST. */
#define ARENA_CHUNK_STEPS 16
#define ARENA_CALLS_STEPS 32
#define ARENA_STEPS_MOST  (ARENA_STEPS - 1 + ARENA_CALLS_STEPS)

/* In a fork child: what a thread that it does not have had charged without listing it yet, or unlisted without
 * discharging it yet, is nobody's. */
HIDDEN void arenas_after_fork(void);

HIDDEN void arenas_lock_totals(struct lock_totals *to);
extern HIDDEN struct lone_lock arena_locks[ARENA_LOCKS];

INLINE bool arena_is_closing(const struct arena *arena) {
  return atomic_load_explicit(&arena->closing, memory_order_relaxed);
}

#endif
