/* flush: see flush.h.                                                                               floor: heap */
#include "heap/flush.h"

#include "base/options.h"
#include "heap/bins.h"
#include "heap/check.h"
#include "heap/cut.h"
#include "heap/large_cache.h"
#include "heap/magazine.h"
#include "heap/profile.h"
#include "heap/quarantine.h"
#include "heap/registry.h"
#include "heap/remote.h"
#include "heap/tcache.h"
#include "heap/timing.h"

/* Returns magazines of the class to slabs, about so many bytes. */
static size_t flush_class(struct heap *heap, unsigned class, size_t bytes) {
  size_t moved = 0;
  while (moved < bytes) {
    lock_take(&heap->lock);
    struct chain chain = magazine_take_oldest(heap, class);
    lock_release(&heap->lock);
    if (chain.count == 0) break;
    moved += chain.count * class_size(class);
    bins_return(&heap->lock, chain);
  }
  return moved;
}

size_t heap_flush_magazines(struct heap *heap, size_t most) {
  size_t moved = 0;
  if (!heap_has_store(heap) || __atomic_load_n(&heap->magazine_bytes, __ATOMIC_RELAXED) == 0) return 0;
  for (unsigned class = 0; class < CLASSES && moved < most; class++) {
    size_t has = LOAD_RACING(heap->bins[class].magazine_blocks) * class_size(class);
    moved += flush_class(heap, class, min_size(has, most - moved));
  }
  return moved;
}

void heap_flush_lists(struct heap *heap) {
  if (!heap_has_store(heap)) return;
  if (TSLAB_CHECK_LEVEL >= 2) heap_check(heap);
  if (TSLAB_HARDENED) quarantine_empty(heap);
  heap_flush_remote(heap);
  for (unsigned class = 0; class < CLASSES; class++) bins_return(&heap->lock, tcache_take(heap, class));
  heap_flush_magazines(heap, SIZE_MAX);
  large_cache_flush(heap, true);
}

void heap_leave(struct heap *heap) {
  if (TSLAB_HARDENED) quarantine_empty(heap);
  heap_flush_remote(heap);
  timing_flush(heap);
  if (!options.scavenger) heap_flush_lists(heap);
}

size_t heap_flush_dead(struct heap *heap) {
  size_t moved = 0;
  if (!heap_has_store(heap) || heap_is_live(heap)) return 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct chain chain = EMPTY_CHAIN;
    lock_take(&heap->lock); /* a thread that takes the heap out of the pool takes this lock first */
    if (!heap->live && !tcache_is_folded(heap, class)) chain = tcache_take(heap, class);
    lock_release(&heap->lock);
    moved += chain.count * class_size(class);
    bins_return(&heap->lock, chain);
  }
  return moved;
}

size_t heaps_fold_dead(struct heap *heap) {
  heap_begin_common();
  size_t moved = heap_flush_dead(heap);
  moved += heap_flush_magazines(heap, SIZE_MAX) + large_cache_flush(heap, true);
  bins_leave(heap);
  heap_fold(heap);
  return moved;
}

size_t heap_trim(struct heap *heap, bool now) { return heap_has_store(heap) ? bins_trim(heap, now) : 0; }
