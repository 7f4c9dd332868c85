/* large_cache: keeps runs of large blocks that a thread freed for its next ones.                    floor: heap
 *
 * A program that takes a buffer for each message frees one and asks for the same size again. In pages.c this would cut
 * and join free memory under the one lock that all threads share. Here it takes two looks at a few numbers under a lock
 * that other threads rarely want. Runs that stood still since the scavenger's last look go back to pages.c.
 *
 * A run in the cache is RUN_RESERVED, so the library reports a second free of its block, and no neighbour joins it.
 *
 * Threads: heap->lock protects the cache. Only heaps of epoch 0 have runs in it. */
#ifndef TSLAB_HEAP_LARGE_CACHE_H
#define TSLAB_HEAP_LARGE_CACHE_H

#include "heap/heap.h"

/* Returns the newest run of exactly so many granules, RUN_RESERVED, or NULL. Thread: the heap's. */
HIDDEN struct run *large_cache_take(struct heap *heap, size_t granules);

/* Return true if the cache has room for the run of a large block of epoch 0. large_cache_make_room gives back the
 * oldest runs for it. Thread: the heap's. */
HIDDEN bool large_cache_has_room(const struct heap *heap, const struct run *run);
HIDDEN bool large_cache_make_room(struct heap *heap, const struct run *run);

/* Keeps the run of a retired block, for which there is room. Thread: the heap's. */
HIDDEN void large_cache_put(struct heap *heap, struct run *run);

/* Gives back the runs that stood still since the last call, or all. Returns the bytes. Thread: any. */
HIDDEN size_t large_cache_flush(struct heap *heap, bool all);

/* Called after the library had no memory: the caches keep none of the next frees of any thread. Otherwise a process at
 * its limit would fail again and again while its threads keep memory by turns. Thread: any. */
#define LARGE_CACHE_SUSPENDED 1000000 /* frees: about a second of a thread that only frees */
HIDDEN void large_cache_suspend(void);

/* For a fork child whose memory is frozen: forgets the runs that the heap kept. */
HIDDEN void large_cache_forget(struct heap *heap);

/* Returns a sum over all heaps: the most bytes that each kept at a time since the scavenger's last look. */
HIDDEN size_t large_cache_total(void);

INLINE size_t large_cache_bytes(const struct heap *heap) {
  return heap_has_store(heap) ? (size_t)LOAD_RACING(heap->store->large.granules) << GRANULE_SHIFT : 0;
}

/* Returns a large block in the heap's epoch, charged to its arena and listed there. `zero`: NULL if the caller needs no
 * zeros; otherwise *zero says if the block reads as zero, which it does unless its thread freed it lately. */
HIDDEN void *heap_large_alloc(struct heap *heap, size_t size, size_t alignment, bool *zero);
/* Free a large block. `heap` is the thread's heap of epoch 0, or empty_heap. heap_large_keep is quick; if it cannot
 * keep the run, it returns false and changes nothing. */
HIDDEN bool heap_large_keep(struct heap *heap, struct run *run);
HIDDEN void heap_large_free(struct heap *heap, struct run *run);

#endif
