/* refill: malloc and free of small blocks that the fast path cannot serve.                          floor: heap
 *
 * These functions may take the heap's lock, another heap's and pages_lock, one after the other. They hold none when
 * they return. */
#ifndef TSLAB_HEAP_REFILL_H
#define TSLAB_HEAP_REFILL_H

#include "heap/heap.h"

/* Fills an empty list from the magazines, a slab, a dead thread's slab or a new one, and returns one of the blocks, or
 * NULL without memory. Thread: the heap's own. */
HIDDEN void *heap_refill(struct heap *heap, unsigned class);

/* Called after the fast path failed. If the list is not empty, its head is damaged: this gives the list up and returns
 * the head. Otherwise it returns NULL. */
HIDDEN void *heap_take_bad_list(struct heap *heap, unsigned class);

/* Makes room on a list and puts `block`, which the fast path refused, on it. Returns false if it only had to count the
 * calls since the last visit. */
HIDDEN bool heap_overflow(struct heap *heap, unsigned class, void *block);

#endif
