/* remote: frees of blocks that belong to another heap.                                              floor: heap
 *
 * A block of a class that the thread itself uses goes onto the thread's own list while that has room. Any other goes
 * into the freeing heap's batch (struct remote in heap/heap.h). No code reads the blocks until the batch is complete.
 * Then bins_return_batch checks them, groups them by slab, and returns each group with one CAS. A thread without a heap
 * returns each block at once. */
#ifndef TSLAB_HEAP_REMOTE_H
#define TSLAB_HEAP_REMOTE_H

#include "heap/tcache.h"

/* Frees a block that this thread's heap does not own. The block goes to its slab when the batch is complete, or at once
 * if the slab is an epoch's. `heap` is the freeing thread's heap of epoch 0, or empty_heap. */
HIDDEN void heap_free_remote(struct heap *heap, struct run *slab, void *block);

/* Returns true if the thread's own list of the class takes blocks of other threads: the list has room, and no other
 * block of the class shares a cache line. Two threads that free each other's blocks then reuse them, and no slab of the
 * other thread is touched. The list of a thread that only frees fills up, and has no room until its next visit. */
INLINE bool list_takes_remote(const struct heap *heap, unsigned class) {
  return count_room(heap->count[class].now) > 0 && class_size(class) >= REMOTE_LEAST && !heap->arena;
}

/* Puts the block onto the list as fast_push does. */
INLINE void list_put_remote(struct heap *heap, unsigned class, void *block) {
  STORE_RACING(heap->count[class].now, heap->count[class].now - (ROOM_ONE - 1));
  block_mark_free(block);
  block_link(block, heap->list[class]);
  heap->list[class] = block;
  counter_add_release(&heap->bins[class].kept_frees, 1);
}

/* Frees in the same way, quickly, in the usual case. `heap` is the thread's current heap and does not own p's granule;
 * p lies below the frontier. In other cases it returns false and changes nothing: p starts no block, its slab is an
 * epoch's, or the batch would be complete. It does not read the block, so the library reports a double free only when
 * the batch is complete, or as for a block of the thread's own. */
INLINE bool heap_keep_remote(struct heap *heap, void *p) {
  pagemap_entry at = LOAD_RACING(pages_pagemap()[granule_of(p)]);
  unsigned class = entry_class(at);
  struct heap_store *store = heap->store;
  if (TSLAB_HARDENED || !store || at == 0 || !class_starts_block((uintptr_t)p, class_inverse(class))) return false;
  if (LOAD_RACING(entry_heap(at)->arena)) return false; /* not read in the slab's line, which its own thread writes */
  if (list_takes_remote(heap, class)) {
    list_put_remote(heap, class, p);
    return true;
  }
  int32_t room = store->remote.room - (int32_t)max_size(class_size(class), REMOTE_LEAST);
  if (room <= 0) return false;
  __builtin_prefetch(p, 1);
  store->remote.room = room;
  store_add_remote(store, p);
  counter_add_release(&store->bins[class].remote_frees, 1);
  return true;
}

HIDDEN void heap_push_remote(struct heap *heap, unsigned class, void *block); /* counted, and marked if hardened */
HIDDEN void heap_flush_remote(struct heap *heap); /* thread: the heap's own */

/* Returns the number of frees by threads without a heap, which no heap counts. */
HIDDEN uint64_t unowned_frees_of(unsigned class);

#endif
