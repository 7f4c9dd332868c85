/* remote: frees of blocks that belong to another heap.                                              floor: heap
 *
 * A block of a class that the thread itself uses goes onto the thread's own list while that has room. Any other goes
 * into the freeing heap's batch (struct remote in heap/heap.h). No code reads the blocks until the batch is complete.
 * Then bins_return_batch checks them, groups them by slab, and returns each group with one CAS. A thread without a heap
 * returns each block at once. */
#ifndef TSLAB_HEAP_REMOTE_H
#define TSLAB_HEAP_REMOTE_H

#include "heap/heap.h"

/* Offers a block of another thread to the thread's own list. So two threads that free each other's blocks reuse them,
 * and touch no slab of each other. The list of a thread that only frees takes none once it is full, until the thread
 * allocates in the class. Neither does a list of small blocks, of which two threads would write to one line. FREED and
 * LIST_FULL are fast_push's; NOT_HERE: the list takes none, and nothing has changed. */
INLINE enum fast_free list_take_remote(struct heap *heap, unsigned class, void *block) {
  if (class < REMOTE_CLASS || heap->arena) return NOT_HERE;
  struct count count = count_look(&heap->count[class]);
  bool has_room = count_room(count.now) > 0;
  if (!has_room && !count_has_mallocs(count)) return NOT_HERE;
  STORE_RACING(heap->count[class].now, count.now - (ROOM_ONE - 1));
  counter_add_release(&heap->bins[class].kept_frees, 1);
  if (UNLIKELY(!has_room)) return LIST_FULL;
  block_mark_free(block);
  block_link(block, heap->list[class]);
  heap->list[class] = block;
  return FREED;
}

/* Frees a block as heap_free_remote (heap/refill.h) does, quickly, in the usual case. `heap` is the thread's current
 * heap; `owner` is the entry of p's granule, of another heap. LIST_FULL is fast_push's. NOT_HERE: nothing has changed,
 * because p starts no block, its slab is an epoch's, or the batch would be complete. It does not read the block, so the
 * library reports a double free only when the batch is complete, or as for a block of the thread's own. */
INLINE enum fast_free heap_keep_remote(struct heap *heap, pagemap_entry owner, void *p) {
  unsigned class = entry_class(owner);
  struct heap_store *store = heap->store;
  if (TSLAB_HARDENED || !store || !class_starts_block((uintptr_t)p, class_inverse(class))) return NOT_HERE;
  if (LOAD_RACING(entry_heap(owner)->arena)) return NOT_HERE; /* not read in the slab's line, which its thread writes */
  enum fast_free taken = list_take_remote(heap, class, p);
  if (taken != NOT_HERE) return taken;
  int32_t room = store->remote.room - class_tables()->lines[class];
  if (room <= 0) return NOT_HERE;
  __builtin_prefetch(p, 1);
  store->remote.room = room;
  store_add_remote(store, p);
  counter_add_release(&store->bins[class].remote_frees, 1);
  return FREED;
}

HIDDEN void heap_push_remote(struct heap *heap, unsigned class, void *block); /* counted, and marked if hardened */
HIDDEN void heap_flush_remote(struct heap *heap); /* thread: the heap's own */

/* Returns a block to its slab at once. `gate` is the lock of the freeing thread's heap; NULL if it has none. The second
 * one is for a thread without a heap, and counts the free. */
HIDDEN void remote_free_at_once(struct lock *gate, void *block);
HIDDEN void remote_free_unowned(struct run *slab, void *block);

/* Returns the number of frees by threads without a heap, which no heap counts. */
HIDDEN uint64_t unowned_frees_of(unsigned class);

#endif
