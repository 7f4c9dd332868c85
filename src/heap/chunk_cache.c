/* chunk_cache: see chunk_cache.h.                                                                   floor: heap */
#include "heap/chunk_cache.h"

#include "slab/chunk.h"
#include "slab/reserve.h"

static struct run *run_at(uint32_t granule) { return granule ? pages.runs + granule : NULL; }

static void unlink_run(struct chunk_cache *cache, struct run *run) {
  if (run->previous) run_at(run->previous)->next = run->next;
  else cache->newest = run->next;
  if (run->next) run_at(run->next)->previous = run->previous;
  else cache->oldest = run->previous;
  run->next = run->previous = 0;
  STORE_RACING(cache->count, cache->count - 1);
  if (cache->count < cache->least) cache->least = cache->count;
}

static void link_newest(struct chunk_cache *cache, struct run *run) {
  uint32_t g = (uint32_t)run_index(run);
  run->previous = 0;
  run->next = cache->newest;
  if (cache->newest) run_at(cache->newest)->previous = g;
  else cache->oldest = g;
  cache->newest = g;
  STORE_RACING(cache->count, cache->count + 1);
}

/* The oldest ones, linked through next. */
static struct run *take_oldest(struct chunk_cache *cache, size_t count) {
  struct run *first = NULL;
  for (; count > 0; count--) {
    struct run *run = run_at(cache->oldest);
    unlink_run(cache, run);
    run->next = first ? (uint32_t)run_index(first) : 0;
    first = run;
  }
  return first;
}

static struct run *claim(struct chunk_cache *cache, size_t chunks, size_t epoch_cache) {
  size_t before = cache->claimed + cache->epoch_granules;
  STORE_RACING(cache->claimed, (uint32_t)chunks);
  STORE_RACING(cache->epoch_granules, (uint32_t)epoch_cache);
  return before == chunks + epoch_cache ? NULL : reserve_claim(before, chunks + epoch_cache);
}

/* No lock may be held but an epoch's. */
static size_t give_back(struct run *chunks, struct run *excess) {
  struct returning r = {0};
  returning_keep_all(&r, chunks);
  returning_keep_all(&r, excess);
  returning_flush(&r);
  return r.returned;
}

struct run *chunk_cache_take(struct heap *heap) {
  struct heap *plain = heap->plain;
  struct chunk_cache *cache = &plain->store->chunks;
  if (LOAD_RACING(cache->count) == 0) return NULL;
  lock_take(&plain->lock);
  struct run *chunk = run_at(cache->newest);
  if (chunk) unlink_run(cache, chunk);
  lock_release(&plain->lock);
  if (!chunk) return NULL;
  STORE_RACING(chunk->kind, RUN_CHUNK); /* neighbours may be looking; of a run in use, any kind says that it is */
  chunk_begin(chunk_starts(chunk));
  return chunk;
}

/* As new; bump_retire saw to the rest. */
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

/* One granule is the cached epoch's, which is kept after the chunks. */
static bool has_room(const struct chunk_cache *cache) {
  return cache->count + max_size(cache->epoch_granules, 1) < reserve_most();
}

bool chunk_cache_put(struct heap *heap, struct run *chunk) {
  struct heap *plain = heap->plain;
  struct chunk_cache *cache = &plain->store->chunks;
  struct run *excess = NULL;
  lock_take(&plain->lock); /* here a child finds out that it is one, and that its memory is frozen */
  bool room = !pages_is_frozen(chunk) && has_room(cache);
  if (room) {
    if (cache->count == cache->claimed) excess = claim(cache, cache->claimed + 1u, cache->epoch_granules);
    clear(chunk);
    link_newest(cache, chunk);
    heap_notice(plain);
  }
  lock_release(&plain->lock);
  if (UNLIKELY(excess != NULL)) give_back(NULL, excess);
  return room;
}

size_t chunk_cache_flush(struct heap *plain, bool all) {
  struct chunk_cache *cache = &plain->store->chunks;
  if (LOAD_RACING(cache->claimed) == 0) return 0;
  lock_take(&plain->lock);
  struct run *going = take_oldest(cache, all ? cache->count : cache->least);
  cache->least = cache->count;
  struct run *excess = claim(cache, cache->count, cache->epoch_granules);
  lock_release(&plain->lock);
  return give_back(going, excess);
}

bool chunk_cache_claim_epoch(struct heap *plain, uint32_t index, size_t granules) {
  struct chunk_cache *cache = &plain->store->chunks;
  size_t most = reserve_most();
  if (granules > most) return false;
  lock_take(&plain->lock);
  size_t left = min_size(cache->claimed, most - granules);
  struct run *going = take_oldest(cache, cache->count - min_size(cache->count, left));
  STORE_RACING(cache->cached_epoch, index);
  struct run *excess = claim(cache, left, granules);
  heap_notice(plain);
  lock_release(&plain->lock);
  give_back(going, excess);
  return true;
}

void chunk_cache_drop_epoch(struct heap *plain, uint32_t index) {
  struct chunk_cache *cache = &plain->store->chunks;
  struct run *excess = NULL;
  if (LOAD_RACING(cache->cached_epoch) != index) return;
  lock_take(&plain->lock);
  if (cache->cached_epoch == index) {
    excess = claim(cache, cache->claimed, 0);
    STORE_RACING(cache->cached_epoch, 0);
  }
  lock_release(&plain->lock);
  give_back(NULL, excess);
}

void chunk_cache_end(struct heap *plain) {
  struct chunk_cache *cache = &plain->store->chunks;
  struct returning r = {0};
  lock_take(&plain->lock);
  struct run *chunk = take_oldest(cache, cache->count), *excess = claim(cache, 0, 0);
  STORE_RACING(cache->cached_epoch, 0);
  lock_release(&plain->lock);
  for (struct run *next; chunk; chunk = next) {
    next = run_at(chunk->next);
    chunk->next = 0;
    returning_add(&r, chunk);
  }
  returning_keep_all(&r, excess);
  returning_flush(&r);
}
