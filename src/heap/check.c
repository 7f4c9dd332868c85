/* check: see check.h.                                                                               floor: heap */
#include "heap/check.h"

#include "heap/cut.h"
#include "heap/misuse.h"
#include "heap/profile.h"
#include "heap/quarantine.h"
#include "heap/tcache.h"

/* Returns a block that is twice in the batch of remote frees, without the locks that a return of the batch takes. The
 * hardened build checked each free already. */
static void *find_double_remote(struct heap *heap) {
  if (!heap_has_store(heap)) return NULL;
  void *found = NULL;
  unsigned seen = 0;
  for (; !TSLAB_HARDENED && !found && seen < heap->store->remote.count; seen++) {
    void *block = heap->store->remote_blocks[seen];
    const struct run *run = pages_run_of(block);
    if (!run || run->kind != RUN_SLAB) break; /* a second free has ended its slab, so nothing is known of the block */
    if (slab_refuses(block)) found = block;
    block_mark_free(block);
  }
  for (unsigned i = 0; i < seen; i++) block_mark(heap->store->remote_blocks[i], 0);
  return found;
}

void *heap_find_double(struct heap *heap) {
  if (heap->sampling.detached) tcache_rejoin(heap);
  if (profile_is_on() && heap_has_store(heap))
    for (unsigned class = 0; class < CLASSES; class++) cut_settle(heap, class);
  if (TSLAB_HARDENED) quarantine_empty(heap);
  void *remote = find_double_remote(heap);
  if (remote) return remote;
  for (unsigned class = 0; class < CLASSES; class++) {
    unsigned length = tcache_length(heap, class);
    void *found = NULL;
    unsigned seen = 0;
    for (void *b = heap->list[class]; b != CHAIN_END && seen < length; b = block_next(b), seen++) {
      if (!block_is_intact(b)) {
        found = b;
        break;
      }
      block_mark_met(b);
    }
    void *b = heap->list[class];
    for (unsigned i = 0; i < seen; i++, b = block_next(b)) block_mark_free(b);
    if (found) return found;
  }
  return NULL;
}

void heap_tell_double(struct heap *heap) {
  void *twice = find_double_remote(heap);
  if (twice) block_mark_free(twice); /* misuse_freed looks for the mark */
  else twice = heap_find_double(heap);
  if (twice) misuse_freed(twice);
}

void heap_check(struct heap *heap) {
  if (!heap_has_store(heap)) return;
  lock_take(&heap->lock);
  for (unsigned class = 0; class < CLASSES; class++) {
    const struct bin *bin = &heap->bins[class];
    unsigned length = 0, listed = 0, magazine = 0, expected = tcache_length(heap, class);
    void *b = heap->list[class];
    for (; (block_is_intact(b) || block_is_drawn(b)) && length < expected; b = block_next(b), length++)
      INVARIANT(0, class_starts_block((uintptr_t)b, class_inverse(class)));
    if (b != CHAIN_END) break; /* damaged: the thread that takes the list apart reports it */
    INVARIANT(0, length == expected);
    for (uint32_t g = bin->first; g; g = pages.runs[g].next, listed++) {
      struct run *slab = &pages.runs[g];
      uint64_t word = atomic_load_explicit(&slab->word, memory_order_relaxed);
      INVARIANT(0, slab->kind == RUN_SLAB && slab->class == class && (word & SLAB_LISTED));
      INVARIANT(0, slab_count(word) <= slab_linked(word) && slab_linked(word) <= slab->capacity);
    }
    INVARIANT(0, listed == bin->listed && listed <= bin->slabs);
    for (uint16_t i = bin->newest; i; i = heap->magazines[i].older) magazine += heap->magazines[i].count;
    INVARIANT(0, magazine == bin->magazine_blocks);
  }
  lock_release(&heap->lock);
}
