/* chunk_cache: chunks of the reserve that a thread keeps to itself between two epochs.              floor: heap
 *
 * A request of a few chunks gives up all but the one in which the next request begins. Through the reserve, each of
 * these would take the locks that all threads share twice. This cache takes only a lock of the thread's own. It lies in
 * the thread's heap of epoch 0, so it serves any epoch that the thread is in next.
 *
 * The thread's cached epoch (epoch/cache.h) is part of the same account:
 *
 *   granules <= claimed, claimed + epoch_granules <= reserve_most()    claimed + epoch_granules: a thread's claim
 *
 * A thread that goes round hundreds of epochs needs quarters in tides, because its epochs begin and end in groups. So a
 * thread in more than RESERVE_EPOCHS epochs may claim more for quarters, in proportion. When these epochs have ended,
 * the claim falls again, a few quarters with each chunk that comes.
 *
 * `claimed` is the most that the cache held since the scavenger's last look. So a thread that takes and puts by turns
 * changes no shared number. Chunks that no thread used since then go back to the kernel.
 *
 * Whole chunks and quarters (slab/quarter.h) have a list each. Up to four quarters count as a granule, wherever they
 * lie. By default the thread keeps at most as many quarters as it has epochs, and those at low addresses stay. A chunk
 * in the cache is RUN_RESERVED, has no owner, and its bits are 0.
 *
 * Threads: the lock of the heap of epoch 0 protects the cache. The thread changes epoch_granules and cached_epoch, or a
 * holder of the lock of the epoch that cached_epoch names. So a thread that holds that lock may read them. */
#ifndef TSLAB_HEAP_CHUNK_CACHE_H
#define TSLAB_HEAP_CHUNK_CACHE_H

#include "heap/heap.h"

/* Return how many granules some chunks, and the cached chunks, count as. */
INLINE size_t granules_of(size_t whole, size_t quarters) { return whole + divide_up(quarters, QUARTERS); }
INLINE size_t chunk_cache_granules(const struct chunk_cache *cache) {
  return granules_of(LOAD_RACING(cache->whole.count), LOAD_RACING(cache->quarters.count));
}

/* Returns the newest chunk, as chunk_new leaves it but without an epoch, or NULL. `heap`: any of the calling thread. */
HIDDEN struct run *chunk_cache_take(struct heap *heap);

/* Returns such a quarter: one of the thread's, a free one, or one of a granule whose other quarters the thread keeps.
 * NULL without memory. Adds to *how. */
HIDDEN struct run *chunk_cache_take_quarter(struct heap *heap, struct pages_how *how);

/* Keeps a retired chunk that is in no list; a quarter may take another one's place. Returns false, and leaves the chunk
 * as it was, without room. `heap`: as above. */
HIDDEN bool chunk_cache_put(struct heap *heap, struct run *chunk);

/* `plain`, from here on, is a thread's heap for epoch 0. */

/* Gives back the chunks that no thread used since the last call, or all. Returns the bytes. Thread: any. */
HIDDEN size_t chunk_cache_flush(struct heap *plain, bool all);

/* Claims `granules` for the thread's cached epoch, the epoch of that index. Chunks make way. Returns false, and does
 * nothing, if a thread may not keep so many. Thread: the heap's, which holds that epoch's lock. */
HIDDEN bool chunk_cache_claim_epoch(struct heap *plain, uint32_t index, size_t granules);
INLINE bool chunk_cache_has_claimed(const struct heap *plain, uint32_t index, size_t granules) {
  const struct chunk_cache *cache = &plain->store->chunks;
  return LOAD_RACING(cache->cached_epoch) == index && LOAD_RACING(cache->epoch_granules) == granules;
}

/* Ends the thread's claim for the epoch of that index, if it has one. Caller holds that epoch's lock, or no other
 * thread can find the epoch. */
HIDDEN void chunk_cache_drop_epoch(struct heap *plain, uint32_t index);

/* Called at the thread's end: gives the chunks to the reserve and claims nothing. */
HIDDEN void chunk_cache_end(struct heap *plain);

#endif
