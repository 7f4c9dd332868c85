/* check: invariants of a heap, and blocks that are on a list twice.                                 floor: heap
 *
 * Threads: the heap's own thread, or one that may fold its lists. */
#ifndef TSLAB_HEAP_CHECK_H
#define TSLAB_HEAP_CHECK_H

#include "heap/heap.h"

/* Returns a block that is twice in one of the heap's lists, or was written to after its free, or NULL. Thread: the
 * heap's own, at its end. */
HIDDEN void *heap_find_double(struct heap *heap);

/* Reports such a block as a misuse. */
HIDDEN void heap_tell_double(struct heap *heap);

HIDDEN void heap_check(struct heap *heap);

#endif
