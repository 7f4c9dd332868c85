/* counters: the counts of one thread's slow paths.                                                  floor: heap
 *
 * Every thread has counters, to which all its heaps point. Those of a dead thread wait in the pool with its heap for
 * the next thread. The fold of that heap adds their counts to one struct that stands for all such threads, and takes
 * them off the list. So sums over all counters never shrink, and dead threads do not make them slower.
 * Threads without a heap share one struct. Their counts of the same moment may be lost, except the number and the time
 * of slow frees.
 *
 * Threads: only its thread writes a struct. A thread that reads one holds walk_lock (heap/heap.h), under which counters
 * leave the list. */
#ifndef TSLAB_HEAP_COUNTERS_H
#define TSLAB_HEAP_COUNTERS_H

#include "os/lock.h"
#include "slab/classes.h"
#include "slab/large.h"

/* The paths that a call can take. A slow malloc may go through several; the last one in this order names it, because
 * later ones cost more. */
enum path {
  PATH_FAST,    /* the list, or the bump of a pointer */
  PATH_MAGAZINE,   /* a whole list from a magazine */
  PATH_SLAB,    /* blocks that came back to one of the heap's slabs */
  PATH_REMOTE,  /* the same, with frees of other threads */
  PATH_ADOPTED, /* a dead thread's slab */
  PATH_FRESH,   /* pages that were never used, or were given back */
  PATH_RESERVE, /* a new slab or chunk out of the reserve */
  PATH_RUN,     /* a new slab or chunk in free memory */
  PATH_MAP,     /* the frontier moved */
  PATHS_OF_CLASSES,
  PATH_LARGE = PATHS_OF_CLASSES,
  PATH_DAMAGED,  /* a list was given up: double free, or a write to a free block */
  PATH_BIRTH,    /* the thread's first call */
  PATH_PURGE,    /* no memory: gave free memory back and tried again */
  PATH_DIVERTED, /* the epoch was closing: epoch 0 served */
  PATH_REFUSED,  /* NULL: no memory, or no budget */
  PATH_LOCK,     /* waited for locks most of the time */
  PATHS_OF_MALLOC,
  PATH_LIST_FULL = PATHS_OF_MALLOC, /* free: its list was full */
  PATH_FLUSH,                    /* free: blocks of other heaps went to their slabs */
  PATH_LARGE_FREE,
  PATHS
};

/* Every refill counts these. They lie apart from the rest, so that a small process writes to few pages. */
struct refill_counters {
  uint64_t served[PATHS_OF_CLASSES]; /* allocations by each path except the fast one */
  uint64_t lock_fast, lock_contended;
  uint64_t take_attempts, take_retries; /* of slab_take */
};

struct class_counters {
  uint64_t push_attempts, push_retries; /* of slab_push to slabs of other heaps */
  uint64_t adopt_attempts, adopt_failures;
  uint64_t recycled; /* slabs that went to the reserve */
  uint64_t samples, requested, requested_squares;
};

#define BUCKETS 48

/* Times of the calls of one path. Of the fast path it has only the calls that were timed, which are all samples. */
struct path_times {
  uint64_t buckets[BUCKETS], wall_sum, wall_max, lock_wait_sum;
  uint64_t samples, sampled_wall_sum, cpu_samples, cpu_wall_sum, cpu_sum, wait_sum;
};

/* Times of some calls, and how long the thread ran and waited in them. */
struct times {
  uint64_t count, wall_sum, wall_max;
  uint64_t cpu_count, cpu_sum, cpu_max, wait_sum, wait_max; /* of those that read the thread's time */
};

/* A thread's counts since it got its heap. */
struct thread_totals {
  uint64_t thread_id;
  uint64_t slow_allocations, slow_frees, slow_ns;
  struct times samples, repairs;
  uint64_t repair_remote, repair_adopt, repair_purge, repair_other;
};

struct counters {
  uint32_t stages; /* bits, by enum path: the stages of the slow call under way */
  uint32_t slow_countdown; /* slow mallocs until the next sample */
  uint32_t cpu_countdown;  /* samples until one reads the thread's time */
  int64_t bump_countdown;  /* blocks of chunks until the next sample */
  uint32_t bump_used;      /* bytes of the last chunk that was emptied or left */
  uint64_t waited;         /* ticks for locks, in the call under way */
  uint64_t random;
  const void *caller;      /* frame of the public function that runs; NULL: not noted */
  size_t alignment;        /* with a heap profile: the call asks for it; 0: the usual one */
  uint64_t allocations_before, frees_before; /* of its heap, by earlier threads; heaps_lock protects them */
  struct counters *next, *previous;
  struct thread_totals thread_totals;
  struct large_counts large;
  uint64_t large_of_epochs; /* of large.allocated_bytes, by its own thread: those outside epoch 0 */
  struct refill_counters refills[CLASSES];
  struct path_times paths[PATHS];
  struct class_counters classes[CLASSES];
};

extern HIDDEN struct counters shared_counters;
extern HIDDEN struct counters *_Atomic all_counters; /* of live threads, and of those that ended lately */

/* Puts counters on the list. They are zeros, or were folded before. Caller holds heaps_lock. */
HIDDEN void counters_start(struct counters *counters);

/* Takes a dead thread's counters off the list, and keeps their counts. Caller holds walk_lock and heaps_lock. */
HIDDEN void counters_fold(struct counters *counters);

/* Called when a thread begins: adds the counts of the thread before to `departed`. Caller holds heaps_lock, which also
 * protects `departed`. */
HIDDEN void counters_begin(struct counters *counters);
HIDDEN void counters_are_of_this_thread(struct counters *counters); /* a fork child's thread has a new id */
extern HIDDEN struct thread_totals departed;

/* Returns the sum over all threads. Caller holds walk_lock. */
HIDDEN struct large_counts counters_large(void);

HIDDEN void times_add(struct times *to, const struct times *from);
HIDDEN void thread_totals_add(struct thread_totals *to, const struct thread_totals *from);

/* For counters that one thread writes and others read. */
INLINE void counter_add(uint64_t *counter, uint64_t by) { lock_count(counter, by); }
/* The same for a change inside a sequence (heap/heap.h); on x86-64 that costs nothing. */
INLINE void counter_add_release(uint64_t *counter, uint64_t by) {
  __atomic_store_n(counter, *counter + by, __ATOMIC_RELEASE);
}
INLINE void counter_max(uint64_t *most, uint64_t value) {
  if (value > __atomic_load_n(most, __ATOMIC_RELAXED)) __atomic_store_n(most, value, __ATOMIC_RELAXED);
}

/* For counters that any thread writes. */
INLINE void shared_add(_Atomic uint64_t *counter, uint64_t by) {
  atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}
static inline void shared_max(_Atomic uint64_t *most, uint64_t value) {
  uint64_t seen = atomic_load_explicit(most, memory_order_relaxed);
  while (value > seen &&
         !atomic_compare_exchange_weak_explicit(most, &seen, value, memory_order_relaxed, memory_order_relaxed)) {}
}

INLINE void counters_stage(struct counters *counters, enum path path) { counters->stages |= 1u << path; }

/* Adds a wait for a lock to the call under way. */
INLINE void counters_wait(struct counters *counters, uint64_t waited) {
  if (UNLIKELY(waited)) counter_add(&counters->waited, waited);
}

/* Counts a lock that a thread took for a class. */
INLINE void counters_lock(struct counters *counters, unsigned class, uint64_t waited) {
  struct refill_counters *of = &counters->refills[class];
  counter_add(waited ? &of->lock_contended : &of->lock_fast, 1);
  counters_wait(counters, waited);
}

#endif
