/* store: what lists and slabs of a heap need besides the heap itself.                               floor: heap
 *
 *   all_stored -> stored -> stored -> ...        never moves, never goes
 *                   |         |
 *                 store     store                pages of its own: struct heap_store in heap/heap.h
 *
 * A heap of an epoch takes a store when its first list is filled, and gives it back when it is blank. A heap of a
 * thread has one of its own, which is not listed. The counters of the bins go on from where they are, whichever heap
 * takes the store next, so nothing has to be added up when an epoch ends. STORES_KEPT unused stores keep their memory,
 * for epochs that come again. The memory of others goes back to the system; stores_folded has what their bins had
 * counted.
 *
 * Invariant: a heap's store leads to that heap. An unused store has counters, and nothing else that is not 0.
 * Threads:   lists of unused stores are under heaps_lock. Any thread may walk all_stored; who reads counters holds
 *            walk_lock, under which memory goes back. */
#ifndef TSLAB_HEAP_STORE_H
#define TSLAB_HEAP_STORE_H

#include "heap/heap.h"

#define STORES_KEPT 8

struct stored {
  struct notice notice; /* leads to the heap that has the store */
  struct stored *next;
  struct heap_store *store;
  struct stored *next_unused;
};
HIDDEN extern struct stored *_Atomic all_stored;
INLINE struct stored *stored_first(void) { return atomic_load_explicit(&all_stored, memory_order_acquire); }

/* Whose it is; NULL: nobody's. Any thread may ask, but the heap may be another epoch's, or its memory be gone, before
 * the caller looks at it, unless it holds walk_lock. */
INLINE struct heap *notice_heap(const struct notice *notice) {
  return atomic_load_explicit(&notice->heap, memory_order_acquire); /* pairs with store_give_to */
}
INLINE struct heap *stored_heap(const struct stored *stored) { return notice_heap(&stored->notice); }

/* Under heaps_lock: an unused one, or a new one. NULL without memory. */
HIDDEN struct stored *store_take(void);

/* Under heaps_lock, and the heap's. */
HIDDEN void store_give_to(struct heap *heap, struct stored *stored);

/* The same for a heap that has a store of its own for ever, which nobody lists. Under heaps_lock. */
HIDDEN void store_keep(struct heap *heap, struct heap_store *store, struct notice *notice);

/* Under the heap's lock, whose lists are shut: nothing of the heap is in the store any more but counters. NULL when it
 * has none. */
HIDDEN struct stored *store_leave(struct heap *heap);

/* Keeps it for the next heap, or gives its memory back. Without a lock. */
HIDDEN void store_give_up(struct stored *stored);

/* Gives back the memory of unused stores, as far as they were not needed since this was last called, or all of them.
 * Returns bytes. */
HIDDEN size_t stores_trim(bool all);

/* The counts of stores whose memory went back. Under walk_lock, which holds them still. */
struct stores_folded {
  struct bin bins[CLASSES]; /* counters only */
  uint64_t first_use_bytes;
};
HIDDEN extern struct stores_folded stores_folded;

/* In a fork child that froze. */
HIDDEN void stores_freeze(void);

#endif
