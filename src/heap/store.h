/* store: what lists and slabs of a part need besides the part itself.                                floor: heap
 *
 *   all_stored -> stored -> stored -> ...        never moves, never goes
 *                   |         |
 *                 store     store                pages of its own: struct part_store in heap/part.h
 *
 * A part takes a store when its first list is filled. A part of a thread keeps it; a part of an epoch gives it back
 * when it is blank. The counters of the bins go on from where they are, whichever part takes the store next, so nothing
 * has to be added up when an epoch ends. STORES_KEPT unused stores keep their memory, for epochs that come again. The
 * memory of others goes back to the system; stores_folded has what their bins had counted.
 *
 * Invariant: a part's store leads to that part. An unused store has counters, and nothing else that is not 0.
 * Threads:   lists of unused stores are under parts_lock. Any thread may walk all of them, and read counters. */
#ifndef TSLAB_HEAP_STORE_H
#define TSLAB_HEAP_STORE_H

#include "heap/part.h"

#define STORES_KEPT 8

HIDDEN extern const struct quarantine no_quarantine; /* of a part without a store */

struct stored {
  struct stored *next;
  struct part_store *store;
  struct part *_Atomic part; /* whose it is; NULL: nobody's */
  struct stored *next_unused;
};
HIDDEN extern struct stored *_Atomic all_stored;
INLINE struct stored *stored_first(void) { return atomic_load_explicit(&all_stored, memory_order_acquire); }
INLINE struct part *stored_part(const struct stored *stored) {
  return atomic_load_explicit(&stored->part, memory_order_acquire); /* pairs with store_give_to */
}

/* The next part that has a store, from *at on, which moves behind it. NULL: no more. */
INLINE struct part *stored_next_part(struct stored **at) {
  struct part *part = NULL;
  for (; *at && !part; *at = (*at)->next) part = stored_part(*at);
  return part;
}

/* Under parts_lock: an unused one, or a new one; for a part of a thread, whose row tells what its bins count, one that
 * has counted nothing. NULL without memory. */
HIDDEN struct stored *store_take(bool of_epochs);

/* Under parts_lock, and the part's. */
HIDDEN void store_give_to(struct part *part, struct stored *stored);

/* Under the part's lock, whose lists are shut: nothing of the part is in the store any more but counters. NULL when it
 * has none. */
HIDDEN struct stored *store_leave(struct part *part);

/* Keeps it for the next part, or gives its memory back. Without a lock. */
HIDDEN void store_give_up(struct stored *stored);

/* Gives back the memory of unused stores, as far as they were not needed since this was last called, or all of them.
 * Returns bytes. */
HIDDEN size_t stores_trim(bool all);

/* What stores had counted when their memory went back. A sum of these and of what all stores count is whole only if
 * stores_end_sum returns true; else the reader adds up again. */
struct stores_folded {
  struct bin bins[CLASSES]; /* counters only */
  uint64_t first_use_bytes;
};
HIDDEN extern struct stores_folded stores_folded;
HIDDEN extern _Atomic uint64_t stores_folds;
INLINE uint64_t stores_begin_sum(void) { return atomic_load_explicit(&stores_folds, memory_order_acquire); }
HIDDEN bool stores_end_sum(uint64_t begun);

/* In a fork child that froze. */
HIDDEN void stores_freeze(void);

#endif
