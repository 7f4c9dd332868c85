/* chunk_cache: see chunk_cache.h.                                                                    floor: heap */
#include "heap/chunk_cache.h"

#include "slab/reserve.h"

struct run *chunk_cache_take(struct part *part) {
  struct chunk_cache *cache = &part->chunks;
  if (LOAD_RACING(cache->count) == 0) return NULL;
  lock_take(&part->lock);
  struct run *chunk = cache->count ? pages.runs + cache->runs[cache->count - 1] : NULL;
  if (chunk) STORE_RACING(cache->count, cache->count - 1);
  if (cache->count < cache->least) cache->least = cache->count;
  lock_release(&part->lock);
  if (!chunk) return NULL;
  STORE_RACING(chunk->kind, RUN_CHUNK); /* neighbours may be looking; of a run in use, any kind says that it is */
  chunk_begin(chunk_starts(chunk));
  return chunk;
}

/* As new; bump_bury saw to the rest. */
static void clear(struct run *chunk) {
  atomic_store_explicit(&chunk->word, 0, memory_order_relaxed);
  chunk->gone = 0;
  chunk->size = 0;
  chunk->next = chunk->previous = 0;
  STORE_RACING(chunk->capacity, 0);
  STORE_RACING(chunk->class, 0);
  chunk->threshold = 0;
  STORE_RACING(chunk->kind, RUN_RESERVED);
}

bool chunk_cache_put(struct part *part, struct run *chunk) {
  struct chunk_cache *cache = &part->chunks;
  lock_take(&part->lock); /* here a child finds out that it is one, and that its memory is frozen */
  bool room = !pages_is_frozen(chunk) && cache->count < CHUNK_CACHE_MOST;
  if (room && cache->count == cache->lent) {
    room = reserve_lend_within(1);
    STORE_RACING(cache->lent, (uint8_t)(cache->lent + room));
  }
  if (room) {
    clear(chunk);
    cache->runs[cache->count] = (uint32_t)run_index(chunk);
    STORE_RACING(cache->count, cache->count + 1);
  }
  lock_release(&part->lock);
  return room;
}

size_t chunk_cache_flush(struct part *part, bool all) {
  struct chunk_cache *cache = &part->chunks;
  struct run *going[CHUNK_CACHE_MOST];
  struct returning returning = {0};
  if (LOAD_RACING(cache->lent) == 0) return 0;
  lock_take(&part->lock);
  unsigned count = all ? cache->count : cache->least, left = cache->count - count, lent = cache->lent;
  for (unsigned i = 0; i < count; i++) going[i] = pages.runs + cache->runs[i];
  for (unsigned i = 0; i < left; i++) cache->runs[i] = cache->runs[i + count];
  STORE_RACING(cache->count, (uint8_t)left);
  cache->least = (uint8_t)left;
  STORE_RACING(cache->lent, (uint8_t)left);
  lock_release(&part->lock);
  if (lent != left) reserve_lend((int)left - (int)lent);
  for (unsigned i = 0; i < count; i++) returning_keep(&returning, going[i]);
  returning_flush(&returning);
  return returning.returned;
}
