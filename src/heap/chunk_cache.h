/* chunk_cache: what a thread keeps of the reserve to itself between two epochs.                     floor: heap
 *
 * A request of a few chunks gives up all but the one that the next request begins in. Through the reserve each of them
 * would take the locks that all threads share twice; here a lock of the thread's own suffices. The cache lies in the
 * thread's heap for epoch 0, so it serves whichever epoch the thread is in next.
 *
 * The thread's cached epoch (epoch/cache.h) is part of the same account:
 *
 *   granules <= claimed, claimed + epoch_granules <= reserve_most()    claimed + epoch_granules: what a thread claims
 *
 * `claimed` is the most that the cache held since the scavenger's last look, so that a thread which takes and puts by
 * turns changes nothing that others read. Chunks that nobody used since then go back to the kernel.
 *
 * Whole chunks and those of a quarter (slab/quarter.h) are in lists of their own; up to four of the latter count as a
 * granule, wherever they lie. A chunk in here is RUN_RESERVED, leads nowhere, and its bits are 0.
 * Threads: under the lock of the heap for epoch 0. `cached epoch` and `cached_epoch` are changed by the thread, or
 * under the lock of the epoch that cached_epoch names: so a thread that holds that lock may read them. */
#ifndef TSLAB_HEAP_CHUNK_CACHE_H
#define TSLAB_HEAP_CHUNK_CACHE_H

#include "heap/heap.h"

/* Return the granules that a number of chunks counts as, and that the cached chunks count as. */
INLINE size_t granules_of(size_t whole, size_t quarters) { return whole + divide_up(quarters, QUARTERS); }
INLINE size_t chunk_cache_granules(const struct chunk_cache *cache) {
  return granules_of(LOAD_RACING(cache->whole.count), LOAD_RACING(cache->quarters.count));
}

/* Returns the chunk that came last, as chunk_new leaves it, but for an epoch; NULL when there is none. `heap`: any of
 * the calling thread. */
HIDDEN struct run *chunk_cache_take(struct heap *heap);

/* Returns such a chunk of a quarter: of the thread's, of the pool's, or of a granule whose other quarters the thread
 * keeps. NULL without memory. Adds to *how. */
HIDDEN struct run *chunk_cache_take_quarter(struct heap *heap, struct pages_how *how);

/* Keeps a retired chunk that is in no list. Returns false, and does nothing, without room. `heap`: as above. */
HIDDEN bool chunk_cache_put(struct heap *heap, struct run *chunk);

/* `plain`, from here on, is a thread's heap for epoch 0. */

/* Gives back the chunks that stood still since this was called last, or all. Returns bytes. From any thread. */
HIDDEN size_t chunk_cache_flush(struct heap *plain, bool all);

/* The thread keeps `granules` in its cached epoch, which is the epoch of that index; chunks make way. By the thread,
 * under that epoch's lock. Returns false, and does nothing, where it is more than a thread may keep. */
HIDDEN bool chunk_cache_claim_epoch(struct heap *plain, uint32_t index, size_t granules);
INLINE bool chunk_cache_has_claimed(const struct heap *plain, uint32_t index, size_t granules) {
  const struct chunk_cache *cache = &plain->store->chunks;
  return LOAD_RACING(cache->cached_epoch) == index && LOAD_RACING(cache->epoch_granules) == granules;
}

/* If the thread claims anything for the epoch of that index, it does not any more. Under that epoch's lock, or of an
 * epoch that nobody can find. */
HIDDEN void chunk_cache_drop_epoch(struct heap *plain, uint32_t index);

/* At its thread's end: chunks go to the reserve, and nothing is claimed. */
HIDDEN void chunk_cache_end(struct heap *plain);

#endif
