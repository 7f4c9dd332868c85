/* counters: what one thread's slow paths counted.                                                   floor: heap
 *
 * Every thread has one, which all its heaps lead to; a dead thread's waits in the pool with its heap for the next
 * thread. When the heap is folded, its counters' counts are added to one that stands for all such, and the counters
 * leaves the list and the heap, so that sums over all counters never shrink and do not take longer for threads that are
 * gone. Threads without a heap share one: what they count at the same moment may be lost, but for how many slow frees
 * there were and how long these took.
 * Threads: written by its thread, read by any that holds walk_lock (heap/heap.h): under it counters leave the list. */
#ifndef TSLAB_HEAP_COUNTERS_H
#define TSLAB_HEAP_COUNTERS_H

#include "os/lock.h"
#include "slab/classes.h"
#include "slab/large.h"

/* The ways that a call can take. Of the stages that a slow malloc went through, the last in this order names it: the
 * later ones cost more. */
enum path {
  PATH_FAST,    /* the list, or the bump of a pointer */
  PATH_MAGAZINE,   /* a whole list, out of a magazine */
  PATH_SLAB,    /* blocks that came back to one of the heap's slabs */
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
  PATH_FLUSH,                    /* free: blocks of other heaps went to their slabs */
  PATH_LARGE_FREE,
  PATHS
};

/* Counted by every refill. They lie apart from the rest, so that a process that does little writes to few pages. */
struct refill_counters {
  uint64_t served[PATHS_OF_CLASSES]; /* allocations by each path but the fast one */
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

/* Times of the calls that went one way. Of the fast path's calls only those that were timed are in it, all of which are
 * samples. */
struct path_times {
  uint64_t buckets[BUCKETS], wall_sum, wall_max, lock_wait_sum;
  uint64_t samples, sampled_wall_sum, cpu_samples, cpu_wall_sum, cpu_sum, wait_sum;
};

/* Times of some calls, and how long the thread ran and did not run in them. */
struct times {
  uint64_t count, wall_sum, wall_max;
  uint64_t cpu_count, cpu_sum, cpu_max, wait_sum, wait_max; /* of those whose thread time was taken */
};

/* A thread's counts from its birth on. */
struct thread_totals {
  uint64_t thread_id;
  uint64_t slow_allocations, slow_frees, slow_ns;
  struct times samples, repairs;
  uint64_t repair_remote, repair_adopt, repair_purge, repair_other;
};

struct counters {
  uint32_t stages; /* bits, by enum path: what the slow call under way went through */
  uint32_t slow_countdown; /* slow mallocs until the next sample */
  uint32_t cpu_countdown;  /* samples until one takes the thread's time */
  int64_t bump_countdown;  /* blocks in chunks until the next sample */
  uint32_t bump_used;      /* bytes of the last chunk that was emptied or left */
  uint64_t waited;         /* ticks, for locks, in the call under way */
  uint64_t random;
  const void *caller;      /* frame of the function that the program called, while a heap profile is made */
  size_t alignment;        /* that this call asks for; 0: the usual one */
  uint64_t allocations_before, frees_before; /* its heap's, by earlier threads; under heaps_lock */
  struct counters *next, *previous;
  struct thread_totals thread_totals;
  struct large_counts large;
  struct refill_counters refills[CLASSES];
  struct path_times paths[PATHS];
  struct class_counters classes[CLASSES];
};

extern HIDDEN struct counters shared_counters;
extern HIDDEN struct counters *_Atomic all_counters; /* of threads that are alive, or died lately */

/* Counters of zeros; NULL without memory. Under heaps_lock. */
HIDDEN struct counters *counters_make(void);

/* A dead thread's counters goes, its counts stay. First it leaves the list, under walk_lock and heaps_lock; then its
 * whole pages are returned to the kernel, no lock held; then counters_make may hand it out again, under heaps_lock. */
HIDDEN void counters_fold(struct counters *counters);
HIDDEN void counters_purge(struct counters *counters);
HIDDEN void counters_free(struct counters *counters);

/* A thread begins with it: what the one before did is told to departed. Under heaps_lock, as is departed. */
HIDDEN void counters_begin(struct counters *counters);
HIDDEN void counters_are_of_this_thread(struct counters *counters); /* the one thread of a fork child has another id */
extern HIDDEN struct thread_totals departed;

/* All threads'. Under walk_lock. */
HIDDEN struct large_counts counters_large(void);

HIDDEN void times_add(struct times *to, const struct times *from);
HIDDEN void thread_totals_add(struct thread_totals *to, const struct thread_totals *from);

/* For counters that one thread writes and others read. */
INLINE void counter_add(uint64_t *counter, uint64_t by) { lock_count(counter, by); }
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

/* A lock was taken; how long it took counts for the call under way, if any. */
INLINE void counters_wait(struct counters *counters, uint64_t waited) {
  if (UNLIKELY(waited)) counter_add(&counters->waited, waited);
}

/* A lock was taken for a class. */
INLINE void counters_lock(struct counters *counters, unsigned class, uint64_t waited) {
  struct refill_counters *of = &counters->refills[class];
  counter_add(waited ? &of->lock_contended : &of->lock_fast, 1);
  counters_wait(counters, waited);
}

#endif
