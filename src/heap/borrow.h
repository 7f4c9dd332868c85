/* borrow: takes blocks from heaps that are not the thread's own.                                    floor: heap */
#ifndef TSLAB_HEAP_BORROW_H
#define TSLAB_HEAP_BORROW_H

#include "heap/heap.h"

/* Returns a block of common_heap or of sampled_heap, which counts the call, or NULL without memory. `heap` is that of
 * the thread, or empty_heap. Caller holds the lock of `nobodys`. */
HIDDEN void *borrow_from(struct heap *nobodys, const struct heap *heap, unsigned class);

/* For a call that no other memory serves. Returns a block of the class, or of one whose blocks have its size and its
 * alignment, from a slab of any heap of epoch 0, or NULL. That slab goes to common_heap, at any moment of its owner's
 * thread. `heap` is as in borrow_from. Caller holds no lock. */
HIDDEN COLD void *borrow_anywhere(const struct heap *heap, unsigned class);

#endif
