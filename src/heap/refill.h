/* refill: malloc and free of small blocks, once the fast path has given up.                         floor: heap
 *
 * All of these may take the heap's lock, another heap's, and pages_lock, one after the other, and none when they
 * return. */
#ifndef TSLAB_HEAP_REFILL_H
#define TSLAB_HEAP_REFILL_H

#include "heap/heap.h"

/* A block of the class when the list is empty: from the magazines, a slab, a dead thread's slab or a new one, which
 * also fill the list. NULL without memory. By the heap's own thread. */
HIDDEN void *heap_refill(struct heap *heap, unsigned class);

/* After the fast path failed: when it did so although the list is not empty, the list is given up and its head
 * returned. */
HIDDEN void *heap_take_bad_list(struct heap *heap, unsigned class);

/* Puts `block`, which the fast path refused because the list had no room, on the list after making room. Whether that
 * took more than counting what went by. */
HIDDEN bool heap_overflow(struct heap *heap, unsigned class, void *block);

/* The same where the cut withholds the room (cut_withholds). */
HIDDEN void heap_pass_cut(struct heap *heap, unsigned class, void *block);

/* Frees a block whose owner is not this thread's heap: it goes to its slab when its batch is complete (heap/remote.h),
 * or at once if the slab is an epoch's. `heap` is the freeing thread's of epoch 0, or empty_heap. */
HIDDEN void heap_free_remote(struct heap *heap, struct run *slab, void *block);

#endif
