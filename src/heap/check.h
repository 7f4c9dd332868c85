/* check: invariants of a heap, and blocks that are on a list twice.                                 floor: heap
 *
 * Threads: By the heap's own thread, or who may fold its lists. */
#ifndef TSLAB_HEAP_CHECK_H
#define TSLAB_HEAP_CHECK_H

#include "heap/heap.h"

/* A block that stands twice in one of the heap's lists, or was written to since it was freed; NULL when there is none.
 * By the heap's own thread, at its end. */
HIDDEN void *heap_find_double(struct heap *heap);

/* Tells such a block as a misuse. */
HIDDEN void heap_tell_double(struct heap *heap);

HIDDEN void heap_check(struct heap *heap);

#endif
