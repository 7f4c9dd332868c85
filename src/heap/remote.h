/* remote: frees of blocks that belong to another heap.                                              floor: heap
 *
 * A remote free goes into the freeing heap's batch (struct remote in heap/heap.h). Nobody looks at its blocks until the
 * batch is complete. Then bins_return_batch checks them, groups them by slab, and returns each group with one CAS. A
 * thread without a heap returns each block at once. */
#ifndef TSLAB_HEAP_REMOTE_H
#define TSLAB_HEAP_REMOTE_H

#include "heap/heap.h"

/* Puts a block whose owner is not this thread's heap into its batch. Does what heap_free_remote (heap/refill.h) does in
 * the usual case, and quicker. `heap` is the thread's current one, `p` lies below the frontier, in no
 * granule that is owner to `heap`. Returns false, and has done nothing, when the case is not the usual one: p starts no
 * block, its slab is an epoch's, or the batch would be complete. Does not look at the block: a second free is told when
 * the batch is complete. */
INLINE bool heap_keep_remote(struct heap *heap, void *p) {
  pagemap_entry at = LOAD_RACING(pages_pagemap()[granule_of(p)]);
  unsigned class = at % HEAP_ALIGNMENT;
  struct heap_store *store = heap->store;
  if (TSLAB_HARDENED || !store || at == 0 || !class_starts_block((uintptr_t)p, class_inverse(class))) return false;
  int32_t room = store->remote.room - (int32_t)max_size(class_size(class), REMOTE_LEAST);
  if (room <= 0 || pages_run_holding(p)->epoch != 0) return false;
  __builtin_prefetch(p, 1);
  store->remote.room = room;
  store_add_remote(store, p);
  counter_add_release(&store->bins[class].remote_frees, 1);
  return true;
}

HIDDEN void heap_push_remote(struct heap *heap, unsigned class, void *block); /* counted; hardened: marked free, too */
HIDDEN void heap_flush_remote(struct heap *heap); /* now; by the heap's own thread */

/* Returns a block to its slab at once. `gate` is the lock of the freeing thread's heap; NULL if it has none. The second
 * one is for a thread without a heap, and counts the free. */
HIDDEN void remote_free_at_once(struct lock *gate, void *block);
HIDDEN void remote_free_unowned(struct run *slab, void *block);

/* Frees by threads without a heap; no heap counts them. */
HIDDEN uint64_t unowned_frees_of(unsigned class);

#endif
