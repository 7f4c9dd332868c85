/* flush: lists, magazines and caches of a heap go back to its slabs.                                floor: heap
 *
 * Threads: by whom is said at each: the heap's own thread, or any. */
#ifndef TSLAB_HEAP_FLUSH_H
#define TSLAB_HEAP_FLUSH_H

#include "heap/heap.h"

/* Moves the heap's magazines to the slabs, about `most` bytes of it, or what was not needed since this was last asked.
 * From any thread. Returns bytes moved. */
HIDDEN size_t heap_flush_magazines(struct heap *heap, size_t most);
HIDDEN size_t heap_flush_stale(struct heap *heap);

/* Moves the heap's lists to the slabs too. By its own thread. */
HIDDEN void heap_flush_lists(struct heap *heap);

/* Returns remote frees to their slabs, and the lists too when no scavenger will come for them. By the heap's own
 * thread, at its end, before heap_release. */
HIDDEN void heap_leave(struct heap *heap);

/* Moves a dead thread's lists to the slabs; nothing when the heap has a thread. From any thread. Returns bytes
 * moved. */
HIDDEN size_t heap_flush_dead(struct heap *heap);

/* Moves all that a dead thread's heap holds to slabs, and those that have something to give to common_heap, and folds
 * the heap (heap/heap.h), if it has no thread all the while. Returns bytes moved. */
HIDDEN size_t heaps_fold_dead(struct heap *heap);

/* Retires slabs in which every block is free and, of slabs that did not change since the last call (or all, when
 * `now`), the pages between live blocks. From any thread. Returns bytes that became free. */
HIDDEN size_t heap_trim(struct heap *heap, bool now);

#endif
