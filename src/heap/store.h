/* store: the part of a heap that it needs only for lists and slabs.                                 floor: heap
 *
 *   all_stored -> stored -> stored -> ...        never moves, never goes
 *                   |         |
 *                 store     store                pages of its own: struct heap_store in heap/heap.h
 *
 * A heap of an epoch takes a store when its first list is filled, and gives it back when the heap becomes blank. A heap
 * of a thread has a store of its own, which is not listed. The next heap that takes a store goes on with the counters
 * of its bins, so the end of an epoch adds nothing up. STORES_KEPT unused stores keep their memory for later epochs.
 * The memory of others goes back to the kernel; stores_folded has the counts of their bins.
 *
 * Invariant: a heap's store leads to that heap. In an unused store all fields but counters are 0.
 * Threads:   heaps_lock protects the lists of unused stores. Any thread may walk all_stored. A thread that reads
 *            counters holds walk_lock, under which memory goes back. */
#ifndef TSLAB_HEAP_STORE_H
#define TSLAB_HEAP_STORE_H

#include "heap/heap.h"

#define STORES_KEPT 8

struct stored {
  struct notice notice; /* leads to the heap that has the store */
  struct stored *next;
  struct heap_store *store;
  struct stored *next_unused;
  bool is_absent; /* its memory went back to the kernel */
};
HIDDEN extern struct stored *_Atomic all_stored;
INLINE struct stored *stored_first(void) { return atomic_load_explicit(&all_stored, memory_order_acquire); }

/* Returns the heap that has the store, or NULL. Thread: any. Unless the caller holds walk_lock, the heap may serve
 * another epoch, or lose its memory, before the caller looks at it. */
INLINE struct heap *notice_heap(const struct notice *notice) {
  return atomic_load_explicit(&notice->heap, memory_order_acquire); /* pairs with store_give_to */
}
INLINE struct heap *stored_heap(const struct stored *stored) { return notice_heap(&stored->notice); }

/* Returns an unused store or a new one, or NULL without memory. Caller holds heaps_lock. */
HIDDEN struct stored *store_take(void);

/* Gives a store to a heap. Caller holds heaps_lock and the heap's lock. */
HIDDEN void store_give_to(struct heap *heap, struct stored *stored);

/* Gives a heap a store of its own, for ever and unlisted. Caller holds heaps_lock. */
HIDDEN void store_keep(struct heap *heap, struct heap_store *store, struct notice *notice);

/* Takes the store from a heap, and returns it, or NULL if the heap has none. The heap's lists are shut, so that its
 * store holds only counters. Caller holds the heap's lock. */
HIDDEN struct stored *store_leave(struct heap *heap);

/* Keeps a store for the next heap, or gives its memory back. Caller holds no lock. */
HIDDEN void store_give_up(struct stored *stored);

/* Gives back the memory of the unused stores that were not needed since the last call, or of all. Returns the bytes. */
HIDDEN size_t stores_trim(bool all);

/* The counts of stores whose memory went back. They change only under walk_lock. */
struct stores_folded {
  struct bin bins[CLASSES]; /* only the counters are used */
  uint64_t first_use_bytes;
};
HIDDEN extern struct stores_folded stores_folded;

/* In a fork child that froze. */
HIDDEN void stores_freeze(void);

#endif
