/* store: what lists and slabs of a part need besides the part itself.                                floor: heap
 *
 *   all_stored -> stored -> stored -> ...        never moves, never goes
 *                   |         |
 *                 store     store                pages of its own: struct part_store in heap/part.h
 *
 * A part of an epoch takes a store when its first list is filled, and gives it back when it is blank. A part of a
 * thread has one of its own, which is not listed. The counters of the bins go on from where they are, whichever part
 * takes the store next, so nothing has to be added up when an epoch ends. STORES_KEPT unused stores keep their memory,
 * for epochs that come again. The memory of others goes back to the system; stores_folded has what their bins had
 * counted.
 *
 * Invariant: a part's store leads to that part. An unused store has counters, and nothing else that is not 0.
 * Threads:   lists of unused stores are under parts_lock. Any thread may walk all_stored; who reads counters holds
 *            walk_lock, under which memory goes back. */
#ifndef TSLAB_HEAP_STORE_H
#define TSLAB_HEAP_STORE_H

#include "heap/part.h"

#define STORES_KEPT 8

HIDDEN extern const struct quarantine no_quarantine; /* of a part without a store */

struct stored {
  struct notice notice; /* leads to the part that has the store */
  struct stored *next;
  struct part_store *store;
  struct stored *next_unused;
};
HIDDEN extern struct stored *_Atomic all_stored;
INLINE struct stored *stored_first(void) { return atomic_load_explicit(&all_stored, memory_order_acquire); }

/* Whose it is; NULL: nobody's. Any thread may ask, but the part may be another epoch's, or its memory be gone, before
 * the caller looks at it, unless it holds walk_lock. */
INLINE struct part *notice_part(const struct notice *notice) {
  return atomic_load_explicit(&notice->part, memory_order_acquire); /* pairs with store_give_to */
}
INLINE struct part *stored_part(const struct stored *stored) { return notice_part(&stored->notice); }

/* Under parts_lock: an unused one, or a new one. NULL without memory. */
HIDDEN struct stored *store_take(void);

/* Under parts_lock, and the part's. */
HIDDEN void store_give_to(struct part *part, struct stored *stored);

/* The same for a part that has a store of its own for ever, which nobody lists. Under parts_lock. */
HIDDEN void store_keep(struct part *part, struct part_store *store, struct notice *notice);

/* Under the part's lock, whose lists are shut: nothing of the part is in the store any more but counters. NULL when it
 * has none. */
HIDDEN struct stored *store_leave(struct part *part);

/* Keeps it for the next part, or gives its memory back. Without a lock. */
HIDDEN void store_give_up(struct stored *stored);

/* Gives back the memory of unused stores, as far as they were not needed since this was last called, or all of them.
 * Returns bytes. */
HIDDEN size_t stores_trim(bool all);

/* What stores had counted when their memory went back. Under walk_lock, which holds that still. */
struct stores_folded {
  struct bin bins[CLASSES]; /* counters only */
  uint64_t first_use_bytes;
};
HIDDEN extern struct stores_folded stores_folded;

/* In a fork child that froze. */
HIDDEN void stores_freeze(void);

#endif
