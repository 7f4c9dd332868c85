/* large_cache: see large_cache.h.                                                                    floor: heap */
#include "heap/large_cache.h"

#include "base/options.h"
#include "pages/pages.h"

/* The run at that place, which the later ones close up to. */
static struct run *take_at(struct large_cache *cache, unsigned at) {
  struct run *run = pages.runs + cache->runs[at];
  cache->count--;
  for (unsigned i = at; i < cache->count; i++) cache->runs[i] = cache->runs[i + 1];
  STORE_RACING(cache->granules, cache->granules - run->granules);
  if (cache->count < cache->least) cache->least = cache->count;
  return run;
}

struct run *large_cache_take(struct part *part, size_t granules) {
  struct large_cache *cache = &part->large;
  struct run *run = NULL;
  if (LOAD_RACING(cache->granules) < granules) return NULL;
  lock_take(&part->lock);
  for (unsigned at = cache->count; at-- > 0 && !run;)
    if (pages.runs[cache->runs[at]].granules == granules) run = take_at(cache, at);
  lock_release(&part->lock);
  return run;
}

static size_t give_back(struct run *const *runs, unsigned count) {
  size_t bytes = 0;
  for (unsigned i = 0; i < count; i++) {
    bytes += run_bytes(runs[i]);
    pages_free(runs[i], false);
  }
  return bytes;
}

static size_t most_granules(void) { return min_size(LARGE_CACHE_BYTES, options.cache_bytes) >> GRANULE_SHIFT; }

bool large_cache_has_room(const struct part *part, const struct run *run) {
  return !TSLAB_HARDENED && LOAD_RACING(part->large.granules) + run->granules <= most_granules() && !run->moved &&
         !pages_is_frozen(run);
}

bool large_cache_make_room(struct part *part, const struct run *run) {
  struct large_cache *cache = &part->large;
  struct run *going[LARGE_CACHE_RUNS];
  unsigned count = 0;
  if (run->granules > most_granules()) return false;
  lock_take(&part->lock);
  while (cache->granules + run->granules > most_granules()) going[count++] = take_at(cache, 0);
  lock_release(&part->lock);
  give_back(going, count);
  return large_cache_has_room(part, run);
}

void large_cache_put(struct part *part, struct run *run) {
  struct large_cache *cache = &part->large;
  lock_take(&part->lock);
  STORE_RACING(run->kind, RUN_RESERVED);
  cache->runs[cache->count++] = (uint32_t)run_index(run);
  STORE_RACING(cache->granules, cache->granules + run->granules);
  lock_release(&part->lock);
}

size_t large_cache_flush(struct part *part, bool all) {
  struct large_cache *cache = &part->large;
  struct run *going[LARGE_CACHE_RUNS];
  lock_take(&part->lock);
  unsigned count = all ? cache->count : cache->least;
  for (unsigned i = 0; i < count; i++) going[i] = take_at(cache, 0);
  cache->least = cache->count;
  lock_release(&part->lock);
  return give_back(going, count);
}
