/* teardown: takes a heap apart at its epoch's close, destroy or reset.                              floor: heap
 *
 * Threads: the one that ends the epoch, while no other thread uses the heap. */
#ifndef TSLAB_HEAP_TEARDOWN_H
#define TSLAB_HEAP_TEARDOWN_H

#include "heap/heap.h"

/* Called when the heap's epoch closes: returns its lists and magazines to the slabs, and retires every slab without a
 * block in use. At `deadline_ns` it stops and returns false, and the caller calls again (UINT64_MAX: reads no
 * clock). */
HIDDEN bool heap_close(struct heap *heap, uint64_t deadline_ns);

/* Returns the heap's lists to the slabs, because its own thread leaves it for a while. */
HIDDEN void heap_rest(struct heap *heap);

/* Called when the heap's epoch is destroyed or reset: counts its blocks as freed, unless it is `drained`, and forgets
 * its slabs. The caller retires these by run_retire. */
HIDDEN void heap_forget(struct heap *heap, bool drained);

/* Retires any run of an epoch whose heaps have forgotten it: counts it and clears its owner. */
HIDDEN void run_retire(struct run *run);

#endif
