/* large_cache: runs of large blocks that a thread freed, kept for its next ones.                    floor: heap
 *
 * A program that takes a buffer for each message frees one and asks for the same again. From the pages that is two cuts
 * and joins of free memory under the one lock that all threads share; from here two looks at a few numbers under a lock
 * that mostly nobody else wants. What stood still since the scavenger's last look goes back to the pages.
 *
 * A run in here is RUN_RESERVED, so a second free of its block is named, and no neighbour joins it.
 * Threads: under heap->lock. Only heaps of epoch 0 have any. */
#ifndef TSLAB_HEAP_LARGE_CACHE_H
#define TSLAB_HEAP_LARGE_CACHE_H

#include "heap/heap.h"

/* The run of exactly so many granules that came last, RUN_RESERVED; NULL: none. By the heap's thread. */
HIDDEN struct run *large_cache_take(struct heap *heap, size_t granules);

/* Return true if the run of a large block of epoch 0 may be put. The second gives back the oldest runs for it. By the
 * heap's thread. */
HIDDEN bool large_cache_has_room(const struct heap *heap, const struct run *run);
HIDDEN bool large_cache_make_room(struct heap *heap, const struct run *run);

/* Keeps the run of a retired block, for which there is room. By the heap's thread. */
HIDDEN void large_cache_put(struct heap *heap, struct run *run);

/* Gives back what stood still since this was asked last, or all. Returns bytes. From any thread. */
HIDDEN size_t large_cache_flush(struct heap *heap, bool all);

/* Memory was refused: the next frees, of whatever thread, are for all, or a process at its limit would be refused again
 * and again what its threads keep by turns. From any thread. */
#define LARGE_CACHE_SUSPENDED 1000000 /* frees: about a second of a thread that does nothing else */
HIDDEN void large_cache_suspend(void);

/* In a fork child, whose memory is frozen: what the heap kept is nobody's. */
HIDDEN void large_cache_forget(struct heap *heap);

/* Of all heaps: bytes, the most that each kept at a time since it was asked last to give back what stood still. */
HIDDEN size_t large_cache_total(void);

INLINE size_t large_cache_bytes(const struct heap *heap) {
  return heap_has_store(heap) ? (size_t)LOAD_RACING(heap->store->large.granules) << GRANULE_SHIFT : 0;
}

/* A large block in the heap's epoch: slab/large.h's, charged and listed where there is an arena. */
HIDDEN void *heap_large_alloc(struct heap *heap, size_t size, size_t alignment, bool *zero);
/* `heap`: the thread's of epoch 0, or empty_heap. The first is quick, and false when it is not possible: then nothing
 * happened. */
HIDDEN bool heap_large_keep(struct heap *heap, struct run *run);
HIDDEN void heap_large_free(struct heap *heap, struct run *run);

#endif
