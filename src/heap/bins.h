/* bins: a heap's slabs of each class, from their birth to their retirement.                         floor: heap
 *
 *   new -> listed -> (all given out) unlisted -> (enough came back) listed -> (all came back) retired
 *
 * A push that leaves enough free blocks, or all, sets PENDING in the slab's word. The thread that set it calls
 * bins_relist, which lists or retires the slab under its heap's lock. No other thread can retire the slab meanwhile, so
 * it stays valid for the caller. */
#ifndef TSLAB_HEAP_BINS_H
#define TSLAB_HEAP_BINS_H

#include "heap/heap.h"

/* Returns blocks for an empty list: from this heap's slabs, from one of common_heap or a new one. If it must link
 * units, it links until it has `wanted` blocks, eight at most. count 0 without memory. Caller holds heap->lock. */
HIDDEN struct chain bins_take(struct heap *heap, unsigned class, unsigned wanted);

/* Returns at most `most` blocks of a slab that threads share, for a thread that uses the class little; count 0 without
 * memory. common_heap still owns them, so their frees are remote. Caller holds heap->lock. */
HIDDEN struct chain bins_take_shared(struct heap *heap, unsigned class, unsigned most);

/* Gives a listed slab to common_heap. Returns false if the class lists none. Caller holds heap->lock and then
 * common_heap.lock. */
HIDDEN bool bins_share(struct heap *heap, unsigned class);

/* Returns the blocks of a chain to their slabs. `gate` is the lock, not held, of the heap that the chain comes from, or
 * NULL for a thread without a heap. It reports a block that was freed twice, or written to after its free; that block
 * and the rest of the chain are lost. */
HIDDEN void bins_return(struct lock *gate, struct chain chain);

/* Returns a batch of remote frees by the heap's thread to their slabs. The blocks are not linked, and only a hardened
 * build has marked them free. It reports a block that is not in use as a double free, and does not count that free. */
HIDDEN void bins_return_batch(struct heap *heap, void *const *blocks, unsigned count);

/* Lists or retires a slab. The caller has set PENDING and holds no lock. */
HIDDEN void bins_relist(struct run *slab);

/* For a fork child: relists slabs whose relisting thread does not exist there. */
HIDDEN void bins_after_fork(void);
HIDDEN void bins_count_used(uint64_t used[CLASSES]); /* blocks out of slabs, while no other thread runs */

/* Retires at most `most` empty slabs, also those that it would keep otherwise, and returns how many. Caller holds no
 * lock. */
HIDDEN unsigned bins_retire_empty(struct heap *heap, unsigned most);

/* Moves the listed slabs of a dead thread's heap to common_heap, unless a thread has the heap meanwhile. */
HIDDEN void bins_leave(struct heap *heap);

/* See heap_trim. Caller holds no lock but the epoch's. */
HIDDEN size_t bins_trim(struct heap *heap, bool now);

#endif
