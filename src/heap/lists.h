/* lists: how many blocks a thread's lists hold, and how many calls went by.                          floor: heap
 *
 * All but list_totals by the part's own thread. Counts are changed inside a sequence (odd while one is under way), so
 * that a reader needs no lock that the thread would wait on. */
#ifndef TSLAB_HEAP_LISTS_H
#define TSLAB_HEAP_LISTS_H

#include "heap/quarantine.h"

/* Adds what happened in the class since the last visit to its totals. Returns how many mallocs that was. */
HIDDEN unsigned list_settle(struct part *part, unsigned class);

/* Makes `chain` the class's list, with room up to its cap. After list_settle. */
HIDDEN void list_set(struct part *part, unsigned class, struct chain chain);
INLINE unsigned list_length(const struct part *part, unsigned class) { /* without what is in quarantine */
  return count_length(part->count[class].now) - quarantine_of(part, class);
}
INLINE struct chain list_chain(const struct part *part, unsigned class) {
  return (struct chain){part->list[class], list_length(part, class)};
}

/* So many blocks that were counted are not there. Adds up what went by, as list_settle does; the mallocs of it. */
HIDDEN unsigned list_lose(struct part *part, unsigned class, unsigned lost);

/* The class's list goes aside, and what else is there comes back: list_join_aside puts it under its class's list, as
 * list_settle of that class does; list_take_back returns it, to be that list, which is empty. Until then some frees may
 * go onto that list; or none when it is `held`, but for so many already: the next one comes to visit. */
HIDDEN void list_set_aside(struct part *part, unsigned class, unsigned held);
HIDDEN unsigned list_join_aside(struct part *part); /* mallocs that it added up on the way */

INLINE void *list_take_back(struct part *part) {
  struct sampling *sampling = &part->sampling;
  struct count *count = &part->count[sampling->class], whole = count_look(count);
  void *aside = sampling->aside;
  whole.now += sampling->gone;
  whole.then += sampling->gone;
  part_begin_one_store(part);
  __atomic_store(count, &whole, __ATOMIC_RELEASE);
  __atomic_store_n(&sampling->gone, 0, __ATOMIC_RELEASE);
  part_end_change(part);
  sampling->aside = NULL;
  return aside;
}

/* Nothing on the list or aside, and nothing that went by and is not counted yet. By who may settle it. */
INLINE bool list_is_settled(const struct part *part, unsigned class) {
  return part->list[class] == CHAIN_END && part->count[class].now == part->count[class].then &&
         !(part->sampling.aside && part->sampling.class == class);
}

/* The class's first cap. */
HIDDEN void list_open(struct part *part, unsigned class);

/* Halves list_cap, for a list that its thread only frees into. */
HIDDEN void list_shrink(struct part *part, unsigned class);

/* Undoes that once. Or more cap, for a list that its thread both allocates from and frees into, or that was too short,
 * if the part may hold more; when `locked`, at the cost of a class that rests. */
HIDDEN void list_grow(struct part *part, unsigned class, bool locked);

/* The class's calls up to this moment and the length of its list. From any thread. */
struct list_totals {
  uint64_t allocations, frees, length;
};

/* Blocks that the part's lists, or all of it, handed out up to this moment. From any thread. A part that never had
 * slabs, as that of most requests, has caps for no class, and nothing to add up. */
HIDDEN uint64_t list_served(const struct part *part);
INLINE uint64_t list_handed_out(const struct part *part) {
  bool has_lists = LOAD_RACING(part->granted_bytes) != 0;
  return part_bumped(part) + (has_lists ? list_served(part) : __atomic_load_n(&part->served, __ATOMIC_RELAXED));
}

HIDDEN struct list_totals list_totals(struct part *part, unsigned class);

/* The same, whose bin is known; between part_begin_look and part_end_look. */
HIDDEN struct list_totals list_look(const struct part *part, const struct bin *bin, unsigned class);

/* Returns the totals of a class in a store, with the calls on its part's list since the last visit. */
struct stored;
HIDDEN struct list_totals stored_totals(const struct stored *stored, unsigned class);

/* A part without a block or slab gives up its caps, so that its counts are those of its bins alone, and another part
 * may have these. By who may settle its lists. */
HIDDEN void lists_shut(struct part *part);

/* Of all classes, up to this moment; by the thread of a part that has opened one. Blocks that other threads freed are
 * not in it. */
struct list_sums {
  uint64_t allocations, frees;
};
HIDDEN struct list_sums list_sums(struct part *part);
INLINE uint64_t list_unfreed(struct list_sums sums) { return sums.allocations - sums.frees; }

/* A counter that only one thread writes and others read; release for those inside a sequence, and free on x86-64. */
INLINE void bump(uint64_t *counter, uint64_t by) { __atomic_store_n(counter, *counter + by, __ATOMIC_RELEASE); }

#endif
