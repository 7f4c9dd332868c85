/* lifetime: what the heap must know of an epoch: the runs it holds and what they may cost.            floor: heap
 *
 * Every slab, chunk and large block of an epoch is in its lifetime's list and charged to it, and to its parents. Epoch
 * 0 has no lifetime: NULL stands for it, and nothing here is done for it.
 *
 * Invariant: own = bytes of the runs in the list; charged = own + what its children are charged.
 * Threads:   the list under the lifetime's lock, of which there are LIFETIME_LOCKS for all, so that fork can take them;
 *            taken after a part's lock and before reserve_lock and pages_lock. Numbers are atomic. */
#ifndef TSLAB_HEAP_LIFETIME_H
#define TSLAB_HEAP_LIFETIME_H

#include "slab/reserve.h"

#define LIFETIME_LOCKS 64

/* Where memory goes that comes free: to the reserve first, in each case but the last. */
enum lateness {
  LIFETIME_NOT_LATE, /* then to common use: the epoch is open, or its close gives it back before it returns */
  LIFETIME_LATE,     /* then to the kernel at once: the close has returned */
  LIFETIME_UNUSED,   /* to the kernel at once: nobody used it for as long as the reserve keeps anything */
};

struct lifetime {
  uint32_t index;       /* what run->epoch holds; not 0 */
  uint32_t first;       /* run, by granule; next_of_epoch leads on */
  uint32_t ready;       /* runs prefaulted and not used yet, through next; charged, and not in the list */
  _Atomic bool closing; /* no new runs */
  _Atomic uint8_t late; /* enum lateness */
  bool by_slabs;        /* it frees what it takes, so its parts fill no chunks: epoch/spare.h */
  bool novel;           /* not reset, and none of its label has ended before, as far as is known */
  _Atomic size_t own, charged;
  _Atomic size_t spilled;  /* bytes that it gave back for common use */
  _Atomic size_t recycled, returned; /* bytes, since its closing began */
  _Atomic uint64_t refused;
  _Atomic uint64_t bumped, freed; /* heap/bump.c: blocks of chunks that were filled, and how many of these are free */
  _Atomic uint64_t large; /* blocks above the largest class that it handed out */
  uint32_t label;         /* row of heap/label.h */
  _Atomic uint32_t owned; /* by a thread that works on it outside its epoch's lock: epoch/epoch.h */
  size_t budget; /* SIZE_MAX: none */
  struct lifetime *parent;
  struct lifetime_walk *walks; /* that have not come to the end of the list; under the lifetime's lock */
};

/* Lifetimes lie in slots of this size, whose rest is the epoch's own (epoch/epoch.h). Memory of a slot is never given
 * back, so that an index always leads somewhere. */
#define LIFETIME_SLOT 320

/* They come in segments, each twice as long as the one before, so that an index finds its own by its logarithm. */
#define LIFETIME_FIRST_LOG 6
#define LIFETIME_SEGMENTS  (32 - LIFETIME_FIRST_LOG)
extern HIDDEN char *_Atomic lifetime_segments[LIFETIME_SEGMENTS];
extern HIDDEN _Atomic uint32_t lifetimes_so_far;

/* The slot of an index that was made. */
INLINE struct lifetime *lifetime_at(uint32_t index) {
  size_t n = index - 1 + ((size_t)1 << LIFETIME_FIRST_LOG);
  unsigned log = log2_floor(n);
  char *start = atomic_load_explicit(&lifetime_segments[log - LIFETIME_FIRST_LOG], memory_order_relaxed);
  return (struct lifetime *)(void *)(start + (n - ((size_t)1 << log)) * LIFETIME_SLOT);
}

/* Slots from index 1 on, all zeros but index, one by one; NULL without memory. The caller sees to it that only one
 * thread makes one at a time. */
HIDDEN struct lifetime *lifetime_make(void);
INLINE uint32_t lifetimes_made(void) { return atomic_load_explicit(&lifetimes_so_far, memory_order_acquire); }

/* Asks for `bytes` more; false when a budget is in the way. NULL lifetimes have no limit. */
HIDDEN bool lifetime_charge(struct lifetime *lifetime, size_t bytes);
HIDDEN void lifetime_discharge(struct lifetime *lifetime, size_t bytes);

/* The run, charged before, joins the list. */
HIDDEN void lifetime_add(struct lifetime *lifetime, struct run *run);

/* The run, which holds no live block and leads nowhere, leaves the list, and its memory goes to the reserve, or to
 * common use, or when that is too late to the kernel. After that the lifetime may end: it must not be touched.
 * `clean`: every byte reads as zero. Whether it went to the reserve. */
HIDDEN bool lifetime_release(struct lifetime *lifetime, struct run *run, bool clean);

/* The two halves of it, for one of many: the run is the caller's, and nothing is discharged before lifetime_settle. */
HIDDEN void lifetime_unlist(struct lifetime *lifetime, struct run *run);
HIDDEN void lifetime_settle(struct lifetime *lifetime, size_t bytes);

/* As much memory as went to common use is given to the kernel, about `most` bytes of it. Whether some is left. */
HIDDEN bool lifetime_return_spilled(struct lifetime *lifetime, size_t most);

/* Charges and makes resident `bytes`, rounded up to granules, for its first chunks. False, and nothing done, without
 * memory or budget. */
HIDDEN bool lifetime_prepare(struct lifetime *lifetime, size_t bytes);
HIDDEN struct run *lifetime_take_ready(struct lifetime *lifetime, enum run_kind kind); /* charged; NULL when none is */
HIDDEN void lifetime_drop_ready(struct lifetime *lifetime);
HIDDEN size_t lifetime_ready_bytes(const struct lifetime *lifetime);

HIDDEN void lifetime_lock(const struct lifetime *lifetime);
HIDDEN void lifetime_unlock(const struct lifetime *lifetime);

/* Under the lock: the list, for a look at its first few. NULL after the last. */
HIDDEN struct run *lifetime_first(const struct lifetime *lifetime);
HIDDEN struct run *lifetime_next(const struct run *run);

/* A walk over the whole list, whose length has no bound. The lock is held for LIFETIME_STEPS steps at a time; between
 * two holds runs may join the list, which the walk does not meet, and leave it.
 *
 *   for (struct run *run = lifetime_walk(&walk, lifetime); run; run = lifetime_walk_on(&walk, 1)) ...
 *
 * The lock is held wherever the walk has a run. lifetime_walk_on takes the number of steps that the last run took, and
 * returns NULL after the last run, without the lock. A walk that stops before that calls lifetime_walk_end. */
#define LIFETIME_STEPS 64
struct lifetime_walk {
  struct lifetime *lifetime;
  struct lifetime_walk *other; /* of the same lifetime */
  const void *thread; /* an address in its thread-local storage: one without a heap has no struct thread */
  uint32_t next; /* run, by granule */
  unsigned steps;
};
HIDDEN struct run *lifetime_walk(struct lifetime_walk *walk, struct lifetime *lifetime);
HIDDEN struct run *lifetime_walk_on(struct lifetime_walk *walk, unsigned steps);
HIDDEN void lifetime_walk_end(struct lifetime_walk *walk);

/* Steps that a look at each block of a chunk counts as: up to 10 microseconds, where other steps take less than one.
 * And a call for each block of a run, or a few system calls. So one hold takes at most LIFETIME_STEPS_MOST. */
#define LIFETIME_CHUNK_STEPS 16
#define LIFETIME_CALLS_STEPS 32
#define LIFETIME_STEPS_MOST  (LIFETIME_STEPS - 1 + LIFETIME_CALLS_STEPS)

/* In a fork child: what a thread that it does not have had charged without listing it yet, or unlisted without
 * discharging it yet, is nobody's. */
HIDDEN void lifetimes_after_fork(void);

HIDDEN void lifetimes_lock_totals(struct lock_totals *to);
extern HIDDEN struct lone_lock lifetime_locks[LIFETIME_LOCKS];

INLINE bool lifetime_is_closing(const struct lifetime *lifetime) {
  return atomic_load_explicit(&lifetime->closing, memory_order_relaxed);
}

#endif
