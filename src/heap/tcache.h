/* tcache: counts the blocks of a thread's lists, and the calls that they served.                    floor: heap
 *
 * Threads: the heap's own, except for tcache_totals. The thread changes counts inside a sequence (odd while a change is
 * under way), so a reader takes no lock for which the thread would wait. */
#ifndef TSLAB_HEAP_TCACHE_H
#define TSLAB_HEAP_TCACHE_H

#include "heap/heap.h"

/* Adds the calls of the class since the last visit to its totals. Returns how many of them were mallocs. */
HIDDEN unsigned tcache_fold(struct heap *heap, unsigned class);

/* Makes `chain` the class's list, with room up to its cap. Called after tcache_fold. */
HIDDEN void tcache_set(struct heap *heap, unsigned class, struct chain chain);
INLINE struct chain tcache_chain(const struct heap *heap, unsigned class) {
  return (struct chain){heap->list[class], tcache_length(heap, class)};
}

/* Takes the list off the class; only the count still has its blocks. The caller then marks or moves them, and calls
 * tcache_set. A signal handler that calls exit in between frees onto a new list, so it meets none of these blocks. */
INLINE struct chain tcache_lift(struct heap *heap, unsigned class) {
  struct chain chain = tcache_chain(heap, class);
  heap->list[class] = CHAIN_END;
  FENCE_ALL();
  return chain;
}

/* Removes `lost` missing blocks from the count. Returns the mallocs since the last visit, which it adds up as
 * tcache_fold does. */
HIDDEN unsigned tcache_lose(struct heap *heap, unsigned class, unsigned lost);

/* tcache_detach detaches the class's list, after it has rejoined another one that is detached. tcache_rejoin puts the
 * detached list under the blocks freed since, as tcache_fold of that class does. tcache_attach returns the detached
 * list, which then replaces the empty one. Until then a few frees may go onto the class's list. If `held`, none may:
 * the next free visits, after `held` in a row already have. */
HIDDEN void tcache_detach(struct heap *heap, unsigned class, unsigned held);
HIDDEN unsigned tcache_rejoin(struct heap *heap); /* returns the mallocs that it added up */

INLINE bool tcache_is_detached(const struct heap *heap, unsigned class) {
  return heap->sampling.detached && heap->sampling.class == class;
}

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

/* Returns true if the class's list is empty, not detached, and all its calls are counted. Thread: one that may fold
 * it. */
INLINE bool tcache_is_folded(const struct heap *heap, unsigned class) {
  return heap->list[class] == CHAIN_END && heap->count[class].now == heap->count[class].then &&
         !tcache_is_detached(heap, class);
}

/* Gives the class its first cap. */
HIDDEN void tcache_open(struct heap *heap, unsigned class);

/* Takes the whole list; the class's calls are added up. */
HIDDEN struct chain tcache_take(struct heap *heap, unsigned class);

/* Halves tcache_cap of a list that its thread only frees into. */
HIDDEN void tcache_shrink(struct heap *heap, unsigned class);

/* Returns how many blocks a list of the class may hold once it has earned them. */
HIDDEN unsigned tcache_longest(unsigned class);

/* Undoes one halving. Without one, it raises the cap of a list that its thread both allocates from and frees into, or
 * that was too short, if the heap may hold more. If `locked`, a resting class may lose cap for this. */
HIDDEN void tcache_grow(struct heap *heap, unsigned class, bool locked);

/* The class's calls until now and the length of its list. Thread: any. */
struct tcache_totals {
  uint64_t allocations, frees, length;
};

/* tcache_served returns how many blocks the heap's lists have handed out until now; tcache_handed_out adds those of its
 * chunks. Thread: any. A heap that never had slabs, like that of most requests, has no caps and nothing to add up. */
HIDDEN uint64_t tcache_served(const struct heap *heap);
INLINE uint64_t tcache_handed_out(const struct heap *heap) {
  bool has_lists = LOAD_RACING(heap->granted_bytes) != 0;
  return heap_bumped(heap) + (has_lists ? tcache_served(heap) : __atomic_load_n(&heap->served, __ATOMIC_RELAXED));
}

HIDDEN struct tcache_totals tcache_totals(struct heap *heap, unsigned class);

/* Returns the bytes of all blocks that the heap's lists have handed out until now. Thread: the heap's own. */
HIDDEN uint64_t tcache_bytes(const struct heap *heap);

/* Returns the totals for a known bin. Called between heap_begin_look and heap_end_look. */
HIDDEN struct tcache_totals tcache_look(const struct heap *heap, const struct bin *bin, unsigned class);

/* Returns the totals of a class in a store, with the calls on its heap's list since the last visit. */
struct stored;
HIDDEN struct tcache_totals stored_totals(const struct stored *stored, unsigned class);

/* Takes the caps from a heap without blocks and slabs. Its bins then have all its counts, and another heap may take
 * them over. Thread: one that may fold its lists. */
HIDDEN void tcache_shut(struct heap *heap);

/* The calls of all classes until now, without the frees of other threads. Thread: the heap's own; it has opened a
 * class. */
struct tcache_sums {
  uint64_t allocations, frees;
};
HIDDEN struct tcache_sums tcache_sums(struct heap *heap);
INLINE uint64_t tcache_unfreed(struct tcache_sums sums) { return sums.allocations - sums.frees; }

#endif
