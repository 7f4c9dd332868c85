/* large_cache: see large_cache.h.                                                                   floor: heap */
#include "heap/large_cache.h"

#include "base/options.h"
#include "heap/arena.h"
#include "pages/pages.h"

/* Granules. A thread adds to it only if its heap keeps more than it did since the scavenger's last look. So threads
 * that take and free by turns do not share this line. */
static _Atomic size_t total;

static uint32_t suspended; /* the next frees, so many, keep nothing */

size_t large_cache_total(void) { return atomic_load_explicit(&total, memory_order_relaxed) << GRANULE_SHIFT; }

static void set_most(struct large_cache *cache, uint32_t most) {
  atomic_fetch_add_explicit(&total, (size_t)most - cache->most, memory_order_relaxed);
  STORE_RACING(cache->most, most);
}

/* A signal handler may interrupt the code below and fork. In the child the cache is empty and its lock is free, and the
 * interrupted call goes on with its old numbers when the handler returns. So this code ends, and writes only inside the
 * cache, with any numbers, and end_change empties the cache again. */
static void end_change(struct heap *heap) {
  if (UNLIKELY(atomic_load_explicit(&heap->lock.word, memory_order_relaxed) == 0)) large_cache_forget(heap);
}

/* Takes out the run at that place; the later ones move up. Returns NULL in such a child. */
static struct run *take_at(struct large_cache *cache, unsigned at) {
  struct run *run = pages.runs + cache->runs[at];
  unsigned left = cache->count - 1u;
  if (UNLIKELY(run == pages.runs || left >= LARGE_CACHE_RUNS)) return NULL;
  cache->count = left;
  for (unsigned i = at; i < left; i++) cache->runs[i] = cache->runs[i + 1];
  STORE_RACING(cache->granules, cache->granules - run->granules);
  if (left < cache->least) cache->least = left;
  return run;
}

struct run *large_cache_take(struct heap *heap, size_t granules) {
  struct large_cache *cache = &heap->store->large;
  struct run *run = NULL;
  if (LOAD_RACING(cache->granules) < granules) return NULL;
  lock_take(&heap->lock);
  for (unsigned at = cache->count; at-- > 0 && !run;)
    if (pages.runs[cache->runs[at]].granules == granules) run = take_at(cache, at);
  end_change(heap);
  lock_release(&heap->lock);
  return run;
}

static size_t give_back(struct run *const *runs, unsigned count) {
  size_t bytes = 0;
  for (unsigned i = 0; i < count; i++) {
    if (UNLIKELY(!runs[i])) continue;
    bytes += run_bytes(runs[i]);
    pages_free(runs[i], false);
  }
  return bytes;
}

void large_cache_suspend(void) { STORE_RACING(suspended, LARGE_CACHE_SUSPENDED); }

/* Returns how many granules the heap may keep: the most that it kept before, plus the rest of what all heaps may
 * keep. */
static size_t share(const struct large_cache *cache) {
  if (UNLIKELY(LOAD_RACING(suspended) != 0)) return 0;
  size_t all = atomic_load_explicit(&total, memory_order_relaxed), most = LARGE_CACHES_BYTES >> GRANULE_SHIFT;
  size_t rest = all < most ? most - all : 0;
  return min_size(LOAD_RACING(cache->most) + rest, min_size(LARGE_CACHE_BYTES, options.cache_bytes) >> GRANULE_SHIFT);
}

/* Returns true if the cache may keep the run at all. A run with a mapping of its own must lose that first. */
static bool is_wanted(const struct run *run, size_t most) {
  return !TSLAB_HARDENED && !run->moved && run->granules <= most;
}

bool large_cache_has_room(const struct heap *heap, const struct run *run) {
  const size_t most = share(&heap->store->large);
  return is_wanted(run, most) && LOAD_RACING(heap->store->large.granules) + run->granules <= most;
}

bool large_cache_make_room(struct heap *heap, const struct run *run) {
  struct large_cache *cache = &heap->store->large;
  struct run *going[LARGE_CACHE_RUNS];
  unsigned count = 0;
  const size_t most = share(cache);
  if (!is_wanted(run, most)) {
    uint32_t left = LOAD_RACING(suspended);
    if (UNLIKELY(left != 0)) STORE_RACING(suspended, left - 1);
    return false;
  }
  lock_take(&heap->lock);
  for (unsigned all = cache->count; count < all && cache->granules + run->granules > most; count++)
    going[count] = take_at(cache, 0);
  end_change(heap);
  lock_release(&heap->lock);
  give_back(going, count);
  return true;
}

void large_cache_put(struct heap *heap, struct run *run) {
  struct large_cache *cache = &heap->store->large;
  lock_take(&heap->lock); /* here a child finds out that it is one, and that its memory is frozen */
  if (!pages_is_frozen(run)) {
    STORE_RACING(run->kind, RUN_RESERVED);
    cache->runs[cache->count++] = (uint32_t)run_index(run);
    STORE_RACING(cache->granules, cache->granules + run->granules);
    if (cache->granules > cache->most) set_most(cache, cache->granules);
    heap_notice(heap);
  }
  end_change(heap);
  lock_release(&heap->lock);
}

size_t large_cache_flush(struct heap *heap, bool all) {
  if (heap->of_epochs || !heap_has_store(heap)) return 0;
  struct large_cache *cache = &heap->store->large;
  struct run *going[LARGE_CACHE_RUNS];
  lock_take(&heap->lock);
  unsigned count = all ? cache->count : cache->least;
  for (unsigned i = 0; i < count; i++) going[i] = take_at(cache, 0);
  cache->least = cache->count;
  set_most(cache, cache->granules);
  end_change(heap);
  lock_release(&heap->lock);
  return give_back(going, count);
}

void large_cache_forget(struct heap *heap) {
  atomic_store_explicit(&total, 0, memory_order_relaxed);
  heap->store->large = (struct large_cache){.count = 0};
}

/* ---- large blocks of a heap -------------------------------------------------------------------------------------- */

void *heap_large_alloc(struct heap *heap, size_t size, size_t alignment, bool *zero) {
  struct arena *arena = heap->arena;
  size_t bytes = large_run_bytes(size);
  struct pages_how how = {.wants_zero = zero != NULL};
  if (zero) *zero = false;
  counters_stage(heap->counters, PATH_LARGE);
  struct run *again = arena || alignment > GRANULE ? NULL : large_cache_take(heap, large_granules(size));
  if (again) return large_again(again, size, &heap->counters->large);
  if (arena && !arena_charge(arena, bytes)) return NULL;
  void *block = large_alloc(size, alignment, &how, &heap->counters->large);
  if (zero) *zero = block != NULL;
  counters_wait(heap->counters, how.waited);
  if (!arena) return block;
  if (!block) {
    arena_discharge(arena, bytes);
    return NULL;
  }
  struct run *run = pages.runs + granule_of(block);
  heap->counters->large_of_epochs += run->size;
  run->epoch = arena->index;
  arena_add(arena, run);
  atomic_fetch_add_explicit(&arena->large, 1, memory_order_relaxed);
  return block;
}

bool heap_large_keep(struct heap *heap, struct run *run) {
  if (run->epoch != 0 || heap == &empty_heap || !large_cache_has_room(heap, run)) return false;
  pages_note_freed(run_bytes(run));
  large_retire(run, &counters_here()->large);
  large_cache_put(heap, run);
  return true;
}

void heap_large_free(struct heap *heap, struct run *run) {
  pages_note_freed(run_bytes(run));
  large_retire(run, &counters_here()->large);
  if (run->epoch != 0) arena_release(arena_at(run->epoch), run, false);
  else if (heap != &empty_heap && large_cache_make_room(heap, run)) large_cache_put(heap, run);
  else pages_free(run, false);
}
