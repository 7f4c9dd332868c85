/* inside: which threads are inside an epoch, as the thread sees it that ends the epoch.              floor: epoch
 *
 *   enter:  looking = id   | barrier |  open_id == id ?            ending:  open_id = 0  | barrier |  looking == id ?
 *           entered++, looking = 0                                                                    entered == 0 ?
 *   leave:  entered--      | barrier |  open_id == id ?
 *
 * The left side is epoch/scope.h. One of the two sees the other. The barrier of the right side is one on all threads,
 * where the kernel offers that; then the left one costs nothing. Else both are full fences. `looking` comes first
 * because a heap may be detached, and serve another thread, until its thread is known to be inside: a thread writes to
 * no heap before that. The thread that ends the epoch reads the two in the order in which they are written.
 *
 * A call that only allocates or frees one block need not enter: its thread is inside as long as it is looking.
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

/* Takes open_id away: from now on no thread enters, and every one inside is seen. */
HIDDEN void inside_shut(struct epoch *e);

/* Returns true if the thread that the heap is attached to is inside the epoch. */
HIDDEN bool inside_is_busy(const struct heap *heap);

/* Returns the number of threads inside. */
HIDDEN unsigned inside_threads(const struct epoch *e);

#endif
