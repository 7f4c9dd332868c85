/* arena: the runs that an epoch holds, and their charges.                                           floor: heap
 *
 * Every slab, chunk and large block of an epoch is in its arena's list, and the arena and its parents are charged for
 * it. Epoch 0 has no arena: NULL stands for it, and these functions do nothing for it.
 *
 * Invariant: own = bytes of the runs in the list; charged = own + the charges of its children.
 * Threads:   the arena's lock protects the list. All arenas share ARENA_LOCKS locks, so that fork can take them. A
 *            thread takes them after a heap's lock and before reserve_lock and pages_lock. Numbers are atomic. */
#ifndef TSLAB_HEAP_ARENA_H
#define TSLAB_HEAP_ARENA_H

#include "slab/reserve.h"

#define ARENA_LOCKS 64

/* Where an arena's free memory goes: in each case but the last to the reserve first, if that has room. */
enum release_target {
  RELEASE_TO_COMMON_USE, /* then to common use: the epoch is open, or its close gives the memory back before it
                          * returns */
  RELEASE_TO_KERNEL,     /* then to the kernel: the close has returned */
  RELEASE_UNUSED_TO_KERNEL,   /* to the kernel: it was unused for as long as the reserve keeps memory */
};

struct arena {
  uint32_t index;       /* the number in run->epoch; not 0 */
  uint32_t first;       /* run, by granule; the others follow through next_of_epoch */
  uint32_t ready;       /* prefaulted runs that are not used yet, through next; charged, but not in the list */
  _Atomic bool closing; /* it takes no new runs */
  _Atomic uint8_t release_target; /* enum release_target */
  bool by_slabs;        /* its heaps fill slabs and no chunks, because the program frees each block: epoch/cache.h */
  bool first_of_label;           /* it was not reset, and no epoch of its label is known to have ended before */
  _Atomic size_t own, charged;
  _Atomic size_t spilled;  /* bytes that it gave to common use */
  _Atomic size_t recycled, returned; /* bytes, since its close began */
  _Atomic uint64_t refused;
  _Atomic uint64_t bumped, freed; /* heap/bump.c: blocks of filled chunks, and how many of these are free */
  _Atomic uint64_t large; /* blocks above the largest class that were handed out */
  uint32_t label;         /* row of heap/label.h */
  _Atomic uint32_t owned; /* a thread works on it without its epoch's lock: epoch/epoch.h */
  size_t budget; /* SIZE_MAX: none */
  struct arena *parent;
  struct arena_walk *walks; /* walks that are not at the end of the list; the arena's lock protects it */
};

/* Arenas lie in slots of this size; the rest of a slot is the epoch's (epoch/epoch.h). A slot keeps its memory for
 * ever, so that every index leads to a slot. */
#define ARENA_SLOT 320

/* Slots come in segments, each twice as long as the one before, so that the logarithm of an index gives its segment. */
#define ARENA_FIRST_LOG 6
#define ARENA_SEGMENTS  (32 - ARENA_FIRST_LOG)
extern HIDDEN char *_Atomic arena_segments[ARENA_SEGMENTS];
extern HIDDEN _Atomic uint32_t arenas_so_far;

/* Returns the slot of an index that was made. */
INLINE struct arena *arena_at(uint32_t index) {
  size_t n = index - 1 + ((size_t)1 << ARENA_FIRST_LOG);
  unsigned log = log2_floor(n);
  char *start = atomic_load_explicit(&arena_segments[log - ARENA_FIRST_LOG], memory_order_relaxed);
  return (struct arena *)(void *)(start + (n - ((size_t)1 << log)) * ARENA_SLOT);
}

/* Makes the next slot, from index 1 on, with zeros in all fields but index. Returns NULL without memory. The caller
 * makes sure that only one thread makes one at a time. */
HIDDEN struct arena *arena_make(void);
INLINE uint32_t arenas_made(void) { return atomic_load_explicit(&arenas_so_far, memory_order_acquire); }

/* Charges `bytes` more. Returns false if a budget refuses them. A NULL arena has no limit. */
HIDDEN bool arena_charge(struct arena *arena, size_t bytes);
HIDDEN void arena_discharge(struct arena *arena, size_t bytes);

/* Adds a run, which is charged already, to the list. */
HIDDEN void arena_add(struct arena *arena, struct run *run);

/* Takes a run without live blocks and owner off the list, and gives its memory to the reserve, to common use or to the
 * kernel, as release_target says. Returns true if it went to the reserve. After that the arena may end, so the caller
 * must not touch it. `clean`: every byte of the run reads as zero. */
HIDDEN bool arena_release(struct arena *arena, struct run *run, bool clean);

/* arena_release in two steps, for callers that release many runs at once. After arena_unlist the caller owns the run;
 * arena_finish_release discharges all of them. */
HIDDEN void arena_unlist(struct arena *arena, struct run *run);
HIDDEN void arena_return(struct arena *arena, struct run *run); /* between the two: gives the run to the kernel */
HIDDEN void arena_finish_release(struct arena *arena, size_t bytes);

/* Gives the kernel as much memory as went to common use, about `most` bytes of it. Returns true if some is left. */
HIDDEN bool arena_return_spilled(struct arena *arena, size_t most);

/* Charges `bytes`, rounded up to granules, for the first chunks, and makes them resident. Without memory or budget it
 * returns false and changes nothing. */
HIDDEN bool arena_prepare(struct arena *arena, size_t bytes);
HIDDEN struct run *arena_take_ready(struct arena *arena, enum run_kind kind); /* returns a charged run, or NULL */
HIDDEN void arena_drop_ready(struct arena *arena);
HIDDEN size_t arena_ready_bytes(const struct arena *arena);

HIDDEN void arena_lock(const struct arena *arena);
HIDDEN void arena_unlock(const struct arena *arena);

/* For a look at the first few runs of the list. NULL after the last. Caller holds the lock. */
HIDDEN struct run *arena_first(const struct arena *arena);
HIDDEN struct run *arena_next(const struct run *run);

/* A walk over the whole list, whose length has no bound. The walk holds the lock for ARENA_STEPS steps at a time.
 * Between two holds runs may join the list, which the walk does not meet, and leave it.
 *
 *   for (struct run *run = arena_walk(&walk, arena); run; run = arena_walk_on(&walk, 1)) ...
 *
 * Whenever the walk has a run, it holds the lock. arena_walk_on takes the number of steps that the last run took. After
 * the last run it releases the lock and returns NULL. A walk that stops before that calls arena_walk_end. */
#define ARENA_STEPS 64
struct arena_walk {
  struct arena *arena;
  struct arena_walk *other; /* another walk of the same arena */
  const void *thread; /* an address in its thread-local storage, because a thread without a heap has no struct thread */
  uint32_t next; /* run, by granule */
  unsigned steps;
};
HIDDEN struct run *arena_walk(struct arena_walk *walk, struct arena *arena);
HIDDEN struct run *arena_walk_on(struct arena_walk *walk, unsigned steps);
HIDDEN void arena_walk_end(struct arena_walk *walk);

/* A look at each block of a chunk takes up to 10 microseconds and counts as ARENA_CHUNK_STEPS; other steps take less
 * than one. A call for each block of a run, or a few system calls, count as ARENA_CALLS_STEPS. So one hold takes at
 * most ARENA_STEPS_MOST. */
#define ARENA_CHUNK_STEPS 16
#define ARENA_CALLS_STEPS 32
#define ARENA_STEPS_MOST  (ARENA_STEPS - 1 + ARENA_CALLS_STEPS)

/* For a fork child: sets the charges to those of the listed runs. A thread that does not exist there may have charged a
 * run before it listed it, or unlisted one before it discharged it. */
HIDDEN void arenas_after_fork(void);

HIDDEN void arenas_lock_totals(struct lock_totals *to);
extern HIDDEN struct lone_lock arena_locks[ARENA_LOCKS];

INLINE bool arena_is_closing(const struct arena *arena) {
  return atomic_load_explicit(&arena->closing, memory_order_relaxed);
}

#endif
