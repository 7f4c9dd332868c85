/* heap: malloc and free for one heap, once the fast path has given up.                              floor: heap
 *
 * All of these may take the heap's lock, another heap's, and pages_lock, one after the other, and none when they
 * return. */
#ifndef TSLAB_HEAP_REFILL_H
#define TSLAB_HEAP_REFILL_H

#include "heap/bump.h"
#include "heap/tcache.h"

/* A block of the class when the list is empty: from the magazines, a slab, a dead thread's slab or a new one, which
 * also fill the list. NULL without memory. By the heap's own thread. */
HIDDEN void *heap_refill(struct heap *heap, unsigned class);

/* After the fast path failed: when it did so although the list is not empty, the list is given up and its head
 * returned. */
HIDDEN void *heap_take_bad_list(struct heap *heap, unsigned class);

/* A block that stands twice in one of the heap's lists, or was written to since it was freed; NULL when there is none.
 * By the heap's own thread, at its end. */
HIDDEN void *heap_find_double(struct heap *heap);

/* Tells such a block as a misuse. */
HIDDEN void heap_tell_double(struct heap *heap);

/* Puts `block`, which the fast path refused because the list had no room, on the list after making room. Whether that
 * took more than counting what went by. */
HIDDEN bool heap_overflow(struct heap *heap, unsigned class, void *block);

/* Frees a block whose owner is not this thread's heap: it goes to its slab when its batch is complete, or at once if
 * the slab is an epoch's. `heap` is the freeing thread's of epoch 0, or empty_heap. */
HIDDEN void heap_free_remote(struct heap *heap, struct run *slab, void *block);

/* The same for the usual case, and quicker. `heap` is the thread's current one, `p` lies below the frontier, in no
 * granule that is owner to `heap`. Returns false, and has done nothing, when the case is not the usual one: p starts no
 * block, its slab is an epoch's, or the batch would be complete. Does not look at the block: a second free is told when
 * the batch is complete. */
INLINE bool heap_keep_remote(struct heap *heap, void *p) {
  pagemap_entry at = LOAD_RACING(pages_pagemap()[granule_of(p)]);
  unsigned class = at % HEAP_ALIGNMENT;
  struct heap_store *store = heap->store;
  if (TSLAB_HARDENED || !store || at == 0 || !class_starts_block((uintptr_t)p, heap->inverse[class])) return false;
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

/* Moves the heap's magazines to the slabs, about `most` bytes of it, or what was not needed since this was last asked.
 * From any thread. Returns bytes moved. */
HIDDEN size_t heap_flush_magazines(struct heap *heap, size_t most);
HIDDEN size_t heap_flush_stale(struct heap *heap);

/* Moves the heap's lists to the slabs too. By its own thread. */
HIDDEN void heap_flush_lists(struct heap *heap);

/* What a thread leaves behind: remote frees reach their slabs, and the lists too when no scavenger will come for them.
 * By the heap's own thread, before heap_release. */
HIDDEN void heap_leave(struct heap *heap);

/* Moves a dead thread's lists to the slabs; nothing when the heap has a thread. From any thread. Returns bytes
 * moved. */
HIDDEN size_t heap_flush_dead(struct heap *heap);

/* Moves all that a dead thread's heap holds to slabs, and those that have something to give to common_heap, and folds
 * the heap (heap/heap.h), if it has no thread all the while. Returns bytes moved. */
HIDDEN size_t heaps_fold_dead(struct heap *heap);

/* A large block in the heap's epoch: slab/large.h's, charged and listed where there is an arena. */
HIDDEN void *heap_large_alloc(struct heap *heap, size_t size, size_t alignment, bool *zero);
/* `heap`: the thread's of epoch 0, or empty_heap. The first is quick, and false when it is not possible: then nothing
 * happened. */
HIDDEN bool heap_large_keep(struct heap *heap, struct run *run);
HIDDEN void heap_large_free(struct heap *heap, struct run *run);

/* The epoch of the heap closes, and no other thread runs on the heap: its lists and magazines go to the slabs, and
 * every slab without a block in use goes. Stops when `deadline_ns` is past (UINT64_MAX: no clock is read): false, to be
 * called again. */
HIDDEN bool heap_close(struct heap *heap, uint64_t deadline_ns);

/* The heap's own thread leaves it for a while: its lists go to the slabs. */
HIDDEN void heap_rest(struct heap *heap);

/* The epoch of the heap is destroyed or reset, and nobody runs on it: its blocks, unless it is known to be `drained`,
 * are counted as freed, and it forgets its slabs, which are the caller's: to be taken apart by run_retire. */
HIDDEN void heap_forget(struct heap *heap, bool drained);

/* Any run of an epoch whose heaps were abandoned: it is counted and leads nowhere any more. */
HIDDEN void run_retire(struct run *run);

/* In a fork child, see heap.h: and slabs whose folding thread is not there are folded. */
HIDDEN void heap_retire_others(void);
HIDDEN void heap_count_leaked(void);
HIDDEN void heap_freeze(bool knows_its_thread);

/* What a fork child lost: blocks of classes that are neither live nor on a list, and, in one that froze, bytes of all
 * memory that lay below the frontier then. */
struct leaked {
  uint64_t blocks, bytes, frozen;
};
extern HIDDEN struct leaked leaked;

/* Retires slabs in which every block is free and, of slabs that did not change since the last call (or all, when
 * `now`), the pages between live blocks. From any thread. Returns bytes that became free. */
HIDDEN size_t heap_trim(struct heap *heap, bool now);

/* What the heap, which is active, has done and holds for one class; everything under its lock, so exact but for its
 * thread's calls of this moment. Caller holds walk_lock, as for all heaps of epochs. */
struct class_totals {
  uint64_t allocations, frees, remote_frees, refills, overflows, cached, slabs, born, retired;
};
HIDDEN uint64_t unowned_frees_of(unsigned class); /* by threads without a heap, not in any heap's totals */
HIDDEN void heap_totals(struct heap *heap, unsigned class, struct class_totals *out);
HIDDEN void heap_epoch_totals(unsigned class, struct class_totals *out);

HIDDEN void heap_check(struct heap *heap);

#endif
