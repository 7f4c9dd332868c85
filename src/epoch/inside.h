/* inside: tells a thread that ends an epoch which threads are inside.                                floor: epoch
 *
 *   enter:  looking = id   | barrier |  open_id == id ?            ending:  open_id = 0  | barrier |  looking == id ?
 *           entered++, looking = 0                                                                    entered == 0 ?
 *   leave:  entered--      | barrier |  open_id == id ?
 *
 * The left side is in epoch/scope.h. One of the two sides always sees the other. If the kernel offers a barrier on all
 * threads, the right side makes that one, and the left side needs none. Otherwise both make full fences. A thread sets
 * `looking` first, because its heap may be detached and serve another thread until the thread is known to be inside. So
 * it writes to no heap before that. The thread that ends the epoch reads the two words in the order in which they are
 * written.
 *
 * A call that only allocates or frees one block need not enter: its thread counts as inside while it is looking.
 *
 * Threads: the caller holds the epoch's lock, or owns the epoch. */
#ifndef TSLAB_EPOCH_INSIDE_H
#define TSLAB_EPOCH_INSIDE_H

#include "epoch/attach.h"

/* Says whether only the side that ends an epoch executes a barrier. The first attachment decides it, before any thread
 * could be inside. */
enum { BARRIER_UNKNOWN, BARRIER_ONE_SIDED, BARRIER_TWO_SIDED };
HIDDEN extern _Atomic int inside_barrier;
HIDDEN void inside_decide_barrier(void);
INLINE bool inside_is_one_sided(void) {
  return LIKELY(atomic_load_explicit(&inside_barrier, memory_order_relaxed) == BARRIER_ONE_SIDED);
}

/* The right side's barrier, after an atomic exchange. */
HIDDEN void inside_barrier_of_one(void);

/* Clears open_id: from now on no thread enters, and the caller sees every thread inside. */
HIDDEN void inside_shut(struct epoch *e);

/* Returns true if the thread that the heap is attached to is inside the epoch. */
INLINE bool inside_is_busy(const struct heap *heap) {
  const struct thread *thread = heap->thread;
  if (!thread) return false;
  uint64_t id = epoch_id((const struct epoch *)(const void *)heap->arena);
  /* In this order, because a thread counts itself in before it ends its look. */
  return atomic_load_explicit(&thread->looking, memory_order_acquire) == id ||
         atomic_load_explicit(&heap->bump.entered, memory_order_acquire) != 0;
}

/* Returns the number of threads inside. */
HIDDEN unsigned inside_threads(const struct epoch *e);

#endif
