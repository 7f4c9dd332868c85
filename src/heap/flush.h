/* flush: returns a heap's lists, magazines and caches to slabs and pages.                           floor: heap
 *
 * Threads: each comment says which thread may call: the heap's own, or any. */
#ifndef TSLAB_HEAP_FLUSH_H
#define TSLAB_HEAP_FLUSH_H

#include "heap/heap.h"

/* Moves the heap's magazines to the slabs: about `most` bytes, and of each class about what it has when its turn comes,
 * because its thread may go on filling them. Returns the bytes moved. Thread: any. */
HIDDEN size_t heap_flush_magazines(struct heap *heap, size_t most);
#define MAGAZINE_PIECE (64 * KiB) /* `most` for some 20 microseconds */

/* Moves the heap's lists to the slabs, too. Thread: the heap's own. */
HIDDEN void heap_flush_lists(struct heap *heap);

/* Returns remote frees to their slabs, and the lists, too, if there is no scavenger that would. Thread: the heap's own,
 * at its end, before heap_release. */
HIDDEN void heap_leave(struct heap *heap);

/* Moves a dead thread's lists to the slabs; does nothing if the heap has a thread. Returns the bytes moved. Thread:
 * any. */
HIDDEN size_t heap_flush_dead(struct heap *heap);

/* Moves all free blocks of a dead thread's heap to slabs, gives common_heap its listed slabs, and folds the heap
 * (heap/heap.h), unless a thread gets it meanwhile. Returns the bytes moved. */
HIDDEN size_t heaps_fold_dead(struct heap *heap);

/* Retires slabs in which every block is free, and purges the pages between live blocks of slabs that did not change
 * since the last call (of all, if `now`). Returns the bytes that became free. Thread: any. */
HIDDEN size_t heap_trim(struct heap *heap, bool now);

#endif
