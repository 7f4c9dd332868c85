/* chunk_cache: see chunk_cache.h.                                                                   floor: heap */
#include "heap/chunk_cache.h"

#include "base/options.h"
#include "slab/chunk.h"
#include "slab/quarter.h"
#include "slab/reserve.h"

static struct run *run_at(uint32_t index) { return index ? pages.runs + index : NULL; }

static void unlink_run(struct chunk_list *list, struct run *run) {
  if (run->previous) run_at(run->previous)->next = run->next;
  else list->newest = run->next;
  if (run->next) run_at(run->next)->previous = run->previous;
  else list->oldest = run->previous;
  run->next = run->previous = 0;
  STORE_RACING(list->count, list->count - 1);
  if (list->count < list->least) list->least = list->count;
}

static void link_newest(struct chunk_list *list, struct run *run) {
  uint32_t index = (uint32_t)run_index(run);
  run->previous = 0;
  run->next = list->newest;
  if (list->newest) run_at(list->newest)->previous = index;
  else list->oldest = index;
  list->newest = index;
  STORE_RACING(list->count, list->count + 1);
}

/* Moves the oldest chunks to `others`, linked through next. */
static struct run *take_oldest(struct chunk_list *list, size_t count, struct run *others) {
  for (count = min_size(count, list->count); count > 0; count--) {
    struct run *run = run_at(list->oldest);
    unlink_run(list, run);
    run->next = others ? (uint32_t)run_index(others) : 0;
    others = run;
  }
  return others;
}

static struct run *take_all(struct chunk_cache *cache) {
  return take_oldest(&cache->whole, SIZE_MAX, take_oldest(&cache->quarters, SIZE_MAX, NULL));
}

/* Takes chunks out until at most `granules` are left. */
static struct run *make_way(struct chunk_cache *cache, size_t granules) {
  size_t held = chunk_cache_granules(cache), excess = held - min_size(held, granules);
  size_t whole = min_size(excess, cache->whole.count);
  struct run *going = take_oldest(&cache->whole, whole, NULL);
  return take_oldest(&cache->quarters, (excess - whole) * QUARTERS, going);
}

static struct run *claim(struct chunk_cache *cache, size_t chunks, size_t epoch_cache) {
  size_t before = cache->claimed + cache->epoch_granules;
  STORE_RACING(cache->claimed, (uint32_t)chunks);
  STORE_RACING(cache->epoch_granules, (uint32_t)epoch_cache);
  return before == chunks + epoch_cache ? NULL : reserve_claim(before, chunks + epoch_cache);
}

/* Caller holds no lock but an epoch's. */
static size_t give_back(struct run *chunks, struct run *excess) {
  struct returning r = {0};
  returning_keep_all(&r, chunks);
  returning_keep_all(&r, excess);
  returning_flush(&r);
  return r.returned;
}

static struct run *take_newest(struct heap *plain, struct chunk_list *list) {
  if (LOAD_RACING(list->count) == 0) return NULL;
  lock_take(&plain->lock);
  struct run *chunk = run_at(list->newest);
  if (chunk) unlink_run(list, chunk);
  lock_release(&plain->lock);
  return chunk;
}

static struct run *begin(struct run *chunk) {
  if (!chunk) return NULL;
  STORE_RACING(chunk->kind, RUN_CHUNK); /* other threads may read it; each of these kinds means a run in use */
  chunk_begin(chunk_starts(chunk));
  return chunk;
}

struct run *chunk_cache_take(struct heap *heap) {
  return begin(take_newest(heap->plain, &heap->plain->store->chunks.whole));
}

/* Clears the fields that bump_retire left. */
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

static size_t epochs_of(const struct chunk_cache *cache) {
  return atomic_load_explicit(&cache->attached, memory_order_relaxed);
}

/* Returns how many granules the thread may keep, if the last of them holds quarters. */
static size_t most_granules(const struct chunk_cache *cache) {
  size_t share = min_size(reserve_most(), RESERVE_DEFAULT / GRANULE) * epochs_of(cache) / RESERVE_EPOCHS;
  return max_size(reserve_most(), share);
}

/* Returns the most quarters that the thread keeps: as many as it has epochs, so not those that epochs before these
 * needed. A reserve above the default is meant for these, too. */
static size_t most_quarters(const struct chunk_cache *cache) {
  size_t most = most_granules(cache) * QUARTERS;
  return options.reserve_bytes > RESERVE_DEFAULT ? most : min_size(most, epochs_of(cache));
}

/* Keeps a quarter in place of the oldest one if its address is lower. So the quarters that stay when most of a thread's
 * epochs have ended come to lie in few granules, and the tables of the others can go back. Returns the one that must
 * go, or NULL. */
static struct run *exchange_oldest(struct chunk_list *quarters, struct run *quarter) {
  struct run *oldest = run_at(quarters->oldest);
  if (!oldest) return NULL;
  unlink_run(quarters, oldest);
  if (oldest < quarter) {
    link_newest(quarters, oldest); /* the next one is compared with another */
    return NULL;
  }
  clear(quarter);
  link_newest(quarters, quarter);
  return oldest;
}

bool chunk_cache_put(struct heap *heap, struct run *chunk) {
  struct heap *plain = heap->plain;
  if (UNLIKELY(!heap_has_store(plain))) return false;
  struct chunk_cache *cache = &plain->store->chunks;
  bool quarter = run_is_quarter(chunk);
  struct chunk_list *list = quarter ? &cache->quarters : &cache->whole;
  struct run *excess = NULL;
  lock_take(&plain->lock); /* a fork child finds out here that its memory is frozen */
  bool frozen = pages_is_frozen(chunk);
  /* One granule is for the cached epoch, which the thread keeps after the chunks. */
  size_t held = granules_of(cache->whole.count + !quarter, cache->quarters.count + quarter);
  size_t most = quarter ? most_granules(cache) : reserve_most();
  bool room = !frozen && held + max_size(cache->epoch_granules, 1) <= most;
  if (quarter && cache->quarters.count >= most_quarters(cache)) room = false;
  if (room) {
    if (held > cache->claimed) excess = claim(cache, held, cache->epoch_granules);
    clear(chunk);
    link_newest(list, chunk);
    heap_notice(plain);
    pages_note_freed(GRANULE);
  } else if (quarter && !frozen) {
    excess = exchange_oldest(list, chunk);
    room = excess != NULL;
    size_t surplus = list->count - min_size(list->count, most_quarters(cache));
    excess = take_oldest(list, min_size(surplus, QUARTERS), excess); /* a few at a time: no free may take long */
  }
  lock_release(&plain->lock);
  if (UNLIKELY(excess != NULL)) give_back(NULL, excess);
  return room;
}

/* ---- quarters ---------------------------------------------------------------------------------------------------- */

/* Returns the first quarter of the caller's granule; the thread keeps the others. Without memory to split it, the
 * granule goes to the kernel. */
static struct run *first_quarter_of(struct heap *heap, struct run *whole) {
  struct run *first = quarter_split(whole);
  struct returning others = {0};
  if (!first) {
    chunk_clear_starts(chunk_starts(whole), 0);
    returning_keep(&others, whole);
  }
  for (unsigned i = 1; i < QUARTERS && first; i++)
    if (!chunk_cache_put(heap, first + i)) returning_keep(&others, first + i);
  returning_flush(&others);
  return first;
}

struct run *chunk_cache_take_quarter(struct heap *heap, struct pages_how *how) {
  struct run *chunk = take_newest(heap->plain, &heap->plain->store->chunks.quarters);
  if (!chunk) chunk = quarter_take();
  if (chunk) return begin(chunk);
  struct run *whole = chunk_cache_take(heap);
  if (!whole) whole = chunk_new(0, how);
  return whole ? begin(first_quarter_of(heap, whole)) : NULL;
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

size_t chunk_cache_flush(struct heap *plain, bool all) {
  struct chunk_cache *cache = &plain->store->chunks;
  if (LOAD_RACING(cache->claimed) == 0) return 0;
  lock_take(&plain->lock);
  struct run *going = all ? take_all(cache) : NULL;
  if (!all) going = take_oldest(&cache->whole, cache->whole.least, NULL);
  if (!all) going = take_oldest(&cache->quarters, cache->quarters.least, going);
  cache->whole.least = cache->whole.count;
  cache->quarters.least = cache->quarters.count;
  struct run *excess = claim(cache, chunk_cache_granules(cache), cache->epoch_granules);
  lock_release(&plain->lock);
  return give_back(going, excess);
}

bool chunk_cache_claim_epoch(struct heap *plain, uint32_t index, size_t granules) {
  struct chunk_cache *cache = &plain->store->chunks;
  if (granules > reserve_most()) return false;
  lock_take(&plain->lock);
  size_t most = most_granules(cache), sum = cache->claimed + granules;
  size_t left = cache->claimed - min_size(sum - min_size(sum, most), min_size(granules, cache->claimed));
  struct run *going = make_way(cache, left);
  STORE_RACING(cache->cached_epoch, index);
  struct run *excess = claim(cache, left, granules);
  heap_notice(plain);
  pages_note_freed(granules << GRANULE_SHIFT);
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
  struct run *chunk = take_all(cache), *excess = claim(cache, 0, 0);
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
