/* teardown: what a heap does when its epoch closes, is destroyed or reset.                          floor: heap
 *
 * Threads: By whoever ends the epoch, while no other thread runs on the heap. */
#ifndef TSLAB_HEAP_TEARDOWN_H
#define TSLAB_HEAP_TEARDOWN_H

#include "heap/heap.h"

/* The epoch of the heap closes, and no other thread runs on the heap: its lists and magazines go to the slabs, and
 * every slab without a block in use goes. Stops when `deadline_ns` is past (UINT64_MAX: no clock is read): false, to be
 * called again. */
HIDDEN bool heap_close(struct heap *heap, uint64_t deadline_ns);

/* The heap's own thread leaves it for a while: its lists go to the slabs. */
HIDDEN void heap_rest(struct heap *heap);

/* The epoch of the heap is destroyed or reset, and nobody runs on it: its blocks, unless it is known to be `drained`,
 * are counted as freed, and it forgets its slabs, which are the caller's: to be taken apart by run_retire. */
HIDDEN void heap_forget(struct heap *heap, bool drained);

/* Any run of an epoch whose heaps were abandoned: it is counted and leads nowhere any more. */
HIDDEN void run_retire(struct run *run);

#endif
