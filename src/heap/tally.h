/* tally: what one thread's slow paths counted.                                                       floor: heap
 *
 * Every thread has one, which all its parts lead to; a dead thread's waits in the pool with its part for the next
 * thread. When the part is settled, its tally's counts are added to one that stands for all such, and the tally leaves
 * the list and the part, so that sums over all tallies never shrink and do not take longer for threads that are gone.
 * Threads without a part share one: what they count at the same moment may be lost, but for how many slow frees there
 * were and how long these took.
 * Threads: written by its thread, read by any that holds walk_lock (heap/part.h): under it tallies leave the list. */
#ifndef TSLAB_HEAP_TALLY_H
#define TSLAB_HEAP_TALLY_H

#include "os/lock.h"
#include "slab/classes.h"
#include "slab/large.h"

/* The ways that a call can take. Of the stages that a slow malloc went through, the last in this order names it: the
 * later ones cost more. */
enum path {
  PATH_FAST,    /* the list, or the bump of a pointer */
  PATH_DEPOT,   /* a list that was put by */
  PATH_SLAB,    /* blocks that came back to one of the part's slabs */
  PATH_REMOTE,  /* the same, other threads' frees among them */
  PATH_ADOPTED, /* a dead thread's slab */
  PATH_FRESH,   /* pages that were not in use before, or were given back */
  PATH_RESERVE, /* a new slab or chunk out of the reserve */
  PATH_RUN,     /* in memory that was free */
  PATH_MAP,     /* the frontier moved */
  PATHS_OF_CLASSES,
  PATH_LARGE = PATHS_OF_CLASSES,
  PATH_DAMAGED,  /* a list was given up: double free, or a write to a free block */
  PATH_BIRTH,    /* the thread's first call */
  PATH_PURGE,    /* memory was refused, given back, and asked for again */
  PATH_DIVERTED, /* the epoch was closing: epoch 0 served */
  PATH_REFUSED,  /* NULL: no memory, or no budget */
  PATH_LOCK,     /* waited for locks most of the time */
  PATHS_OF_MALLOC,
  PATH_PUT_BY = PATHS_OF_MALLOC, /* free: its list was full */
  PATH_FLUSH,                    /* free: blocks of other parts went to their slabs */
  PATH_LARGE_FREE,
  PATHS
};

/* What every refill counts, apart from the rest, so that a process that does little writes to few pages. */
struct refill_tally {
  uint64_t served[PATHS_OF_CLASSES]; /* allocations by each path but the fast one */
  uint64_t lock_fast, lock_contended;
  uint64_t take_attempts, take_retries; /* of slab_take */
};

struct class_tally {
  uint64_t push_attempts, push_retries; /* of slab_push to slabs of other parts */
  uint64_t adopt_attempts, adopt_failures;
  uint64_t recycled; /* slabs that went to the reserve */
  uint64_t samples, requested, requested_squares;
};

#define BUCKETS 48

/* Of the calls that went one way; of the fast path's, only those that were timed, all of which are samples. */
struct path_times {
  uint64_t buckets[BUCKETS], wall_sum, wall_max, lock_wait_sum;
  uint64_t samples, sampled_wall_sum, cpu_samples, cpu_wall_sum, cpu_sum, wait_sum;
};

/* Times of some calls, the parts of them that the thread ran and did not. */
struct times {
  uint64_t count, wall_sum, wall_max;
  uint64_t cpu_count, cpu_sum, cpu_max, wait_sum, wait_max; /* of those whose thread time was taken */
};

/* What a thread did, from its birth on. */
struct doings {
  uint64_t thread_id;
  uint64_t slow_allocations, slow_frees, slow_ns;
  struct times samples, repairs;
  uint64_t repair_remote, repair_adopt, repair_purge, repair_other;
};

struct tally {
  uint32_t stages; /* bits, by enum path: what the slow call under way went through */
  uint32_t slow_countdown; /* slow mallocs until the next sample */
  uint32_t cpu_countdown;  /* samples until one takes the thread's time */
  int64_t bump_countdown;  /* blocks in chunks until the next sample */
  uint32_t bump_used;      /* bytes of the last chunk that was emptied or left */
  uint64_t waited;         /* ticks, for locks, in the call under way */
  uint64_t random;
  uint64_t allocations_before, frees_before; /* its part's, by earlier threads; under parts_lock */
  struct tally *next, *previous;
  struct doings doings;
  struct large_counts large;
  struct refill_tally refills[CLASSES];
  struct path_times paths[PATHS];
  struct class_tally classes[CLASSES];
};

extern HIDDEN struct tally nobodys_tally;
extern HIDDEN struct tally *_Atomic all_tallies; /* of threads that are alive, or died lately */

/* A tally of zeros; NULL without memory. Under parts_lock. */
HIDDEN struct tally *tally_make(void);

/* A dead thread's tally goes, its counts stay. First it leaves the list, under walk_lock and parts_lock; then its whole
 * pages are returned to the kernel, no lock held; then tally_make may hand it out again, under parts_lock. */
HIDDEN void tally_settle(struct tally *tally);
HIDDEN void tally_purge(struct tally *tally);
HIDDEN void tally_free(struct tally *tally);

/* A thread begins with it: what the one before did is told to departed. Under parts_lock, as is departed. */
HIDDEN void tally_begin(struct tally *tally);
HIDDEN void tally_is_of_this_thread(struct tally *tally); /* the one thread of a fork child has another id */
extern HIDDEN struct doings departed;

/* All threads'. Under walk_lock. */
HIDDEN struct large_counts tally_large(void);

HIDDEN void times_add(struct times *to, const struct times *from);
HIDDEN void doings_add(struct doings *to, const struct doings *from);

/* Of what only one thread writes and others read. */
INLINE void tally_add(uint64_t *counter, uint64_t by) { lock_count(counter, by); }
INLINE void tally_max(uint64_t *most, uint64_t value) {
  if (value > __atomic_load_n(most, __ATOMIC_RELAXED)) __atomic_store_n(most, value, __ATOMIC_RELAXED);
}

/* Of what any thread writes. */
INLINE void shared_add(_Atomic uint64_t *counter, uint64_t by) {
  atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}
static inline void shared_max(_Atomic uint64_t *most, uint64_t value) {
  uint64_t seen = atomic_load_explicit(most, memory_order_relaxed);
  while (value > seen &&
         !atomic_compare_exchange_weak_explicit(most, &seen, value, memory_order_relaxed, memory_order_relaxed)) {}
}

INLINE void tally_stage(struct tally *tally, enum path path) { tally->stages |= 1u << path; }

/* A lock was taken; how long it took counts for the call under way, if any. */
INLINE void tally_wait(struct tally *tally, uint64_t waited) {
  if (UNLIKELY(waited)) tally_add(&tally->waited, waited);
}

/* A lock was taken for a class. */
INLINE void tally_lock(struct tally *tally, unsigned class, uint64_t waited) {
  struct refill_tally *of = &tally->refills[class];
  tally_add(waited ? &of->lock_contended : &of->lock_fast, 1);
  tally_wait(tally, waited);
}

#endif
