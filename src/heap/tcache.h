/* tcache: how many blocks a thread's lists hold, and how many calls went by.                        floor: heap
 *
 * All but tcache_totals by the heap's own thread. Counts are changed inside a sequence (odd while one is under way), so
 * that a reader needs no lock that the thread would wait on. */
#ifndef TSLAB_HEAP_TCACHE_H
#define TSLAB_HEAP_TCACHE_H

#include "heap/quarantine.h"

/* Adds what happened in the class since the last visit to its totals. Returns how many mallocs that was. */
HIDDEN unsigned tcache_fold(struct heap *heap, unsigned class);

/* Makes `chain` the class's list, with room up to its cap. After tcache_fold. */
HIDDEN void tcache_set(struct heap *heap, unsigned class, struct chain chain);
INLINE unsigned tcache_length(const struct heap *heap, unsigned class) { /* without what is in quarantine */
  return count_length(heap->count[class].now) - quarantine_of(heap, class);
}
INLINE struct chain tcache_chain(const struct heap *heap, unsigned class) {
  return (struct chain){heap->list[class], tcache_length(heap, class)};
}

/* Removes `lost` missing blocks from the count. Returns the mallocs since the last visit, which it adds up as
 * tcache_fold does. */
HIDDEN unsigned tcache_lose(struct heap *heap, unsigned class, unsigned lost);

/* The class's list is detached, and what else is there comes back: tcache_rejoin puts it under its class's list, as
 * tcache_fold of that class does; tcache_attach returns it, to be that list, which is empty. Until then some frees may
 * go onto that list; or none when it is `held`, but for so many already: the next one comes to visit. */
HIDDEN void tcache_detach(struct heap *heap, unsigned class, unsigned held);
HIDDEN unsigned tcache_rejoin(struct heap *heap); /* mallocs that it added up on the way */

INLINE void *tcache_attach(struct heap *heap) {
  struct sampling *sampling = &heap->sampling;
  struct count *count = &heap->count[sampling->class], whole = count_look(count);
  void *detached = sampling->detached;
  whole.now += sampling->gone;
  whole.then += sampling->gone;
  heap_begin_one_store(heap);
  __atomic_store(count, &whole, __ATOMIC_RELEASE);
  __atomic_store_n(&sampling->gone, 0, __ATOMIC_RELEASE);
  heap_end_change(heap);
  sampling->detached = NULL;
  return detached;
}

/* Nothing on the list or detached, and nothing that went by and is not counted yet. By who may fold it. */
INLINE bool tcache_is_folded(const struct heap *heap, unsigned class) {
  return heap->list[class] == CHAIN_END && heap->count[class].now == heap->count[class].then &&
         !(heap->sampling.detached && heap->sampling.class == class);
}

/* The class's first cap. */
HIDDEN void tcache_open(struct heap *heap, unsigned class);

/* Takes the whole list; the class's calls are added up. */
HIDDEN struct chain tcache_take(struct heap *heap, unsigned class);

/* Halves tcache_cap, for a list that its thread only frees into. */
HIDDEN void tcache_shrink(struct heap *heap, unsigned class);

/* Undoes that once. Or more cap, for a list that its thread both allocates from and frees into, or that was too short,
 * if the heap may hold more; when `locked`, at the cost of a class that rests. */
HIDDEN void tcache_grow(struct heap *heap, unsigned class, bool locked);

/* The class's calls up to this moment and the length of its list. From any thread. */
struct tcache_totals {
  uint64_t allocations, frees, length;
};

/* Blocks that the heap's lists, or all of it, handed out up to this moment. From any thread. A heap that never had
 * slabs, as that of most requests, has caps for no class, and nothing to add up. */
HIDDEN uint64_t tcache_served(const struct heap *heap);
INLINE uint64_t tcache_handed_out(const struct heap *heap) {
  bool has_lists = LOAD_RACING(heap->granted_bytes) != 0;
  return heap_bumped(heap) + (has_lists ? tcache_served(heap) : __atomic_load_n(&heap->served, __ATOMIC_RELAXED));
}

HIDDEN struct tcache_totals tcache_totals(struct heap *heap, unsigned class);

/* The same, whose bin is known; between heap_begin_look and heap_end_look. */
HIDDEN struct tcache_totals tcache_look(const struct heap *heap, const struct bin *bin, unsigned class);

/* Returns the totals of a class in a store, with the calls on its heap's list since the last visit. */
struct stored;
HIDDEN struct tcache_totals stored_totals(const struct stored *stored, unsigned class);

/* A heap without a block or slab gives up its caps, so that its counts are those of its bins alone, and another heap
 * may have these. By who may fold its lists. */
HIDDEN void tcache_shut(struct heap *heap);

/* The calls of all classes up to this moment, for the thread of a heap that has opened one. Blocks that other threads
 * freed are not in it. */
struct tcache_sums {
  uint64_t allocations, frees;
};
HIDDEN struct tcache_sums tcache_sums(struct heap *heap);
INLINE uint64_t tcache_unfreed(struct tcache_sums sums) { return sums.allocations - sums.frees; }

/* A counter that only one thread writes and others read; release for those inside a sequence, and free on x86-64. */
INLINE void counter_add_release(uint64_t *counter, uint64_t by) {
  __atomic_store_n(counter, *counter + by, __ATOMIC_RELEASE);
}

#endif
