/* sampled: see sampled.h.                                                                           floor: heap */
#include "heap/sampled.h"

#include "heap/arena.h"
#include "heap/borrow.h"
#include "heap/cut.h"
#include "heap/fast.h"
#include "heap/guard.h"
#include "heap/large_cache.h"
#include "heap/profile.h"
#include "heap/registry.h"
#include "heap/tcache.h"

/* Other threads may run: they see these writes when they take the lock, after they see the interval. */
static void begin(void) {
  heap_begin_sampled();
  lock_take(&sampled_heap.lock);
  lock_release(&sampled_heap.lock);
}

bool sampled_start(uint32_t interval, bool in_chunks) {
  if (!profile_is_on()) begin();
  return profile_start(interval, in_chunks);
}

static void *take_from_slab(struct heap *heap, unsigned class) {
  lock_take(&sampled_heap.lock);
  void *block = borrow_from(&sampled_heap, heap, class);
  lock_release(&sampled_heap.lock);
  return block;
}

static bool has_budget(const struct arena *arena) {
  for (; arena; arena = arena->parent)
    if (arena->budget != SIZE_MAX) return true;
  return false;
}

static void *take_run(struct heap *heap, size_t size) {
  if (has_budget(heap->arena)) return NULL;
  void *block = heap_large_alloc(heap, max_size(size, 1), GRANULE, NULL);
  if (block) pages.runs[granule_of(block)].capacity = 1;
  return block;
}

void *sampled_take(struct heap *heap, unsigned class, size_t size, uint32_t interval) {
  if (profile_is_frozen()) return NULL;
  void *block = heap->arena ? take_run(heap, guard_is_on() ? size : class_size(class)) : take_from_slab(heap, class);
  if (!block) return NULL;
  profile_record(heap, block, size, class_size(class), profile_weight(class_size(class), interval));
  return guard_sample(heap, block, size, class_size(class), interval);
}

static void *take_drawn(struct heap *heap, unsigned class, struct draw *draw, size_t size) {
  uint32_t interval = draw->interval; /* that of the draw; it may have changed since */
  cut_draw(heap, class);
  if (tcache_is_detached(heap, class)) tcache_rejoin(heap);
  cut_unmark(draw);
  void *block = interval == PROFILE_PAUSED ? NULL : sampled_take(heap, class, size, interval); /* a long pause */
  if (UNLIKELY(!block)) block = fast_pop(heap, class, pages.key);
  cut_again(heap, class, CUT_FEW_BLOCKS);
  return block;
}

void *sampled_malloc_slow(struct heap *heap, unsigned class, size_t size) {
  struct draw *draw = &heap->store->draws[class];
  if (!draw->interval) {
    if (tcache_is_detached(heap, class)) return NULL; /* it comes back uncut, so the class draws at a later visit */
    cut_draw(heap, class);
  }
  if (cut_left(heap, draw, class) == 0) return take_drawn(heap, class, draw, size);
  if (!draw->marked || heap->list[class] != draw->marked) return NULL;
  cut_unmark(draw);
  void *block = fast_pop(heap, class, pages.key);
  cut_again(heap, class, CUT_HALF_BLOCKS);
  return block;
}
