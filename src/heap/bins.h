/* bins: a heap's slabs of each class, and what becomes of a slab as its blocks come and go.         floor: heap
 *
 *   new -> listed -> (all given out) unlisted -> (enough came back) listed -> (all came back) retired
 *
 * A push that leaves enough free blocks, or all, sets PENDING in the slab's word; whoever set it calls bins_relist,
 * which lists or retires the slab under its heap's lock. Nobody else can retire it meanwhile, so it stays valid for the
 * caller. */
#ifndef TSLAB_HEAP_BINS_H
#define TSLAB_HEAP_BINS_H

#include "heap/heap.h"

/* Blocks for an empty list, from this heap's slabs, one of common_heap or a new one; `wanted` at the least when a unit
 * must be linked, up to eight. count 0 without memory. Under heap->lock. */
HIDDEN struct chain bins_take(struct heap *heap, unsigned class, unsigned wanted);

/* A few blocks of a slab that threads share, for a thread that uses the class little: `most` at the most, count 0
 * without memory. They stay common_heap's: their frees are remote. Under heap->lock. */
HIDDEN struct chain bins_take_shared(struct heap *heap, unsigned class, unsigned most);

/* Puts a chain on its blocks' slabs. `gate` is the lock of the heap that the chain comes from, not held; NULL when it
 * comes from a thread without a heap. A block that was freed twice, or written to since, is a misuse; that block and
 * the rest of the chain are lost. */
HIDDEN void bins_return(struct lock *gate, struct chain chain);

/* The same for a batch of remote frees by the heap's thread, whose blocks are not linked, and marked free only if the
 * build is hardened. A block that is none in use by now is a misuse; it is told as a free, and not counted as one. */
HIDDEN void bins_return_batch(struct heap *heap, void *const *blocks, unsigned count);

/* The caller has set PENDING; no lock held. */
HIDDEN void bins_relist(struct run *slab);

/* In a fork child: relists slabs whose relisting thread is not there. */
HIDDEN void bins_after_fork(void);
HIDDEN void bins_count_used(uint64_t used[CLASSES]); /* blocks that slabs hand out, while no other thread runs */

/* Retires slabs that are empty, cached epochs too, at most `most`; returns how many. No lock held. */
HIDDEN unsigned bins_retire_empty(struct heap *heap, unsigned most);

/* The listed slabs of a dead thread's heap become common_heap's; none if a thread has the heap meanwhile. */
HIDDEN void bins_leave(struct heap *heap);

/* See heap_trim. No lock held but the epoch's. */
HIDDEN size_t bins_trim(struct heap *heap, bool now);

#endif
