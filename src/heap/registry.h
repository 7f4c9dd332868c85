/* registry: heaps are made, given to threads and epochs, taken back, and folded.                    floor: heap
 *
 * The states of a thread's heap are drawn in heap/heap.h. Threads: heaps_lock guards the pool and the lists. */
#ifndef TSLAB_HEAP_REGISTRY_H
#define TSLAB_HEAP_REGISTRY_H

#include "heap/heap.h"

/* Gives a store to a heap that has none. False without memory. By the heap's own thread. */
HIDDEN COLD bool heap_make_store(struct heap *heap);

/* Before the first use of common_heap; does nothing the second time. And of sampled_heap, once. */
HIDDEN void heap_begin_common(void);
HIDDEN void heap_begin_sampled(void);

/* A dead thread's heap, or a new one. NULL without memory. */
HIDDEN struct heap *heap_acquire(void);

/* The heap goes to the pool, lists and all. By its own thread, at its end. Its owner then calls
 * heaps_fold_dead if no scavenger will. */
HIDDEN void heap_release(struct heap *heap);

/* The same for an epoch: a heap without a slab or block. heap_give_back needs it so again. */
HIDDEN struct heap *heap_take_blank(struct arena *arena);
HIDDEN void heap_give_back(struct heap *heap);

/* Folds a heap that waits in the pool and holds nothing any more. False when it does not or holds something. */
HIDDEN bool heap_fold(struct heap *heap);

/* For heap/fork.c: a heap that no thread has goes to the pool; a child counts as another process; one that froze has no
 * pool. */
HIDDEN void heap_put_in_pool(struct heap *heap);
HIDDEN void registry_after_fork(void);
HIDDEN void registry_freeze(void);

#endif
