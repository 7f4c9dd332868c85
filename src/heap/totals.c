/* totals: see totals.h.                                                                             floor: heap */
#include "heap/totals.h"

#include "heap/store.h"
#include "heap/tcache.h"

static void add_counters(struct class_totals *to, const struct bin *bin) {
  uint64_t remote = __atomic_load_n(&bin->remote_frees, __ATOMIC_RELAXED);
  to->frees += remote;
  to->remote_frees += remote + __atomic_load_n(&bin->kept_frees, __ATOMIC_RELAXED); /* the list counted these */
  to->refills += __atomic_load_n(&bin->refills, __ATOMIC_RELAXED);
  to->overflows += __atomic_load_n(&bin->overflows, __ATOMIC_RELAXED);
  to->born += LOAD_RACING(bin->born);
  to->retired += LOAD_RACING(bin->retired);
}

static void add_totals(struct class_totals *to, const struct bin *bin, struct tcache_totals list, struct heap *heap) {
  to->allocations += list.allocations;
  to->frees += list.frees;
  if (heap) lock_take(&heap->lock);
  to->cached += LOAD_RACING(bin->magazine_blocks) + list.length;
  to->slabs += LOAD_RACING(bin->slabs);
  add_counters(to, bin);
  if (heap) lock_release(&heap->lock);
}

void heap_totals(struct heap *heap, unsigned class, struct class_totals *out) {
  add_totals(out, &heap->bins[class], tcache_totals(heap, class), heap);
  if (heap != &common_heap) return;
  lock_take(&heap->lock);
  out->slabs += folded_slabs[class];
  lock_release(&heap->lock);
}

void heap_epoch_totals(unsigned class, struct class_totals *out) {
  const struct bin *folded = &stores_folded.bins[class];
  out->allocations += LOAD_RACING(folded->allocations);
  out->frees += LOAD_RACING(folded->frees);
  add_counters(out, folded);
  for (struct stored *stored = stored_first(); stored; stored = stored->next)
    add_totals(out, &stored->store->bins[class], stored_totals(stored, class), stored_heap(stored));
}
