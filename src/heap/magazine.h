/* magazine: full lists of free blocks, kept whole until a list runs empty.                          floor: heap
 *
 * A list becomes a magazine and a magazine becomes a list in O(1). So a thread that frees and allocates in waves
 * touches its slabs' lines only beyond options.cache_bytes, or if it only frees and its magazines hold a long list's
 * blocks (docs/decisions/0088). A class uses its newest magazine first. At every look the scavenger returns all blocks
 * to their slabs. So the thread's next blocks come from slabs that were nearly full until lately, and not from where
 * the last blocks were freed (docs/decisions/0087).
 *
 * Threads: heap->lock protects the magazines. */
#ifndef TSLAB_HEAP_MAGAZINE_H
#define TSLAB_HEAP_MAGAZINE_H

#include "heap/heap.h"

/* Returns true if `count` more blocks of the class are too many for the magazines now. Without the lock the result is a
 * hint. */
HIDDEN bool magazines_are_full(const struct heap *heap, unsigned class, unsigned count);

/* Keeps a chain as a magazine. Returns false, and changes nothing, without room. */
HIDDEN bool magazine_put(struct heap *heap, unsigned class, struct chain chain);

/* Take the newest or the oldest magazine of the class; count 0 if there is none. */
HIDDEN struct chain magazine_take(struct heap *heap, unsigned class);
HIDDEN struct chain magazine_take_oldest(struct heap *heap, unsigned class);

/* Takes the first blocks of the class's oldest magazine, at most `most`, and appends `behind`. If a link of the
 * magazine is damaged, this returns `behind` alone and sets *astray to the whole magazine. The caller gives *astray to
 * bins_return, which reports the damage. */
HIDDEN struct chain magazine_take_some(struct heap *heap, unsigned class, unsigned most, struct chain behind,
                                    struct chain *astray);

#endif
