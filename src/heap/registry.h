/* registry: makes heaps, gives them to threads and epochs, takes them back and folds them.          floor: heap
 *
 * heap/heap.h draws the states of a thread's heap. Threads: heaps_lock protects the pool and the lists. */
#ifndef TSLAB_HEAP_REGISTRY_H
#define TSLAB_HEAP_REGISTRY_H

#include "heap/heap.h"

/* Gives a store to a heap that has none. Returns false without memory. Thread: the heap's own. */
HIDDEN COLD bool heap_make_store(struct heap *heap);

/* heap_begin_common comes before the first use of common_heap, heap_begin_sampled before that of sampled_heap. The
 * second call of either does nothing. */
HIDDEN void heap_begin_common(void);
HIDDEN void heap_begin_sampled(void);

/* Returns a dead thread's heap or a new one, or NULL without memory. */
HIDDEN struct heap *heap_acquire(void);

/* Returns room for the struct thread of epoch/attach.h, of THREAD_ROOM bytes: zeros, or what the heap's last thread
 * left. `heap` is a thread's. */
#define THREAD_ROOM 1760
HIDDEN void *heap_room_for_thread(const struct heap *heap);

/* Puts the heap, with its lists, into the pool. Thread: the heap's own, at its end. It then calls heaps_fold_dead if
 * there is no scavenger. */
HIDDEN void heap_release(struct heap *heap);
HIDDEN bool heap_is_live(struct heap *heap); /* a thread has it, as its own or in an epoch */

/* heap_take_blank returns a heap without slabs and blocks for an epoch, or NULL without memory. heap_give_back takes it
 * back without any. */
HIDDEN struct heap *heap_take_blank(struct arena *arena);
HIDDEN void heap_give_back(struct heap *heap);

/* Folds a heap that waits in the pool and holds no free memory any more. Returns false for other heaps. */
HIDDEN bool heap_fold(struct heap *heap);

/* For heap/fork.c: puts a heap without a thread into the pool; counts the child as a new process; empties the pool of a
 * child that froze. */
HIDDEN void heap_put_in_pool(struct heap *heap);
HIDDEN void registry_after_fork(void);
HIDDEN void registry_freeze(void);

#endif
