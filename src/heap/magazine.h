/* magazine: full lists of free blocks, kept whole for when a list runs empty.                       floor: heap
 *
 * A list becomes a magazine and a magazine becomes a list in O(1), so a thread that frees and allocates in long waves
 * pays for its slabs' lines only beyond options.cache_bytes. A class uses its newest magazine first. The scavenger
 * returns the oldest ones to their slabs when nobody needed them for a while.
 *
 * Threads: under heap->lock. */
#ifndef TSLAB_HEAP_MAGAZINE_H
#define TSLAB_HEAP_MAGAZINE_H

#include "heap/heap.h"

/* Returns true if `count` more blocks of the class are too many for the magazines now. From any thread, for whom it is
 * a hint. */
HIDDEN bool magazines_are_full(const struct heap *heap, unsigned class, unsigned count);

/* Puts a chain by; false when there is no room for it, and nothing happened. */
HIDDEN bool magazine_put(struct heap *heap, unsigned class, struct chain chain);

/* The newest magazine of the class; count 0 when there is none. */
HIDDEN struct chain magazine_take(struct heap *heap, unsigned class);

/* The oldest magazine of the class, if it has no more than `most` blocks; count 0 when there is none. */
HIDDEN struct chain magazine_take_oldest(struct heap *heap, unsigned class, unsigned most);

/* The first blocks of the class's oldest magazine, at most `most`, with `behind` behind them. If a link of the magazine
 * leads astray, *astray becomes the whole magazine, and `behind` is returned alone. The caller returns *astray, which
 * tells it. */
HIDDEN struct chain magazine_take_some(struct heap *heap, unsigned class, unsigned most, struct chain behind,
                                    struct chain *astray);

/* Blocks of the class that were there all the time since this was asked last. */
HIDDEN unsigned magazines_stale(struct heap *heap, unsigned class);

#endif
