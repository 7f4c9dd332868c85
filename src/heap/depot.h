/* depot: full lists of free blocks put by, whole, for when a list runs empty.                        floor: heap
 *
 * A list moves in and out in O(1), so a thread that frees and allocates in long waves pays for its slabs' lines only
 * beyond options.cache_bytes. The newest batch of a class comes out first; what was not needed for a while, the oldest,
 * goes to the slabs. Under part->lock. */
#ifndef TSLAB_HEAP_DEPOT_H
#define TSLAB_HEAP_DEPOT_H

#include "heap/part.h"

/* Whether so many blocks of the class are too many for it now. From any thread, for whom it is a hint. */
HIDDEN bool depot_is_full(const struct part *part, unsigned class, unsigned count);

/* Puts a chain by; false when there is no room for it, and nothing happened. */
HIDDEN bool depot_put(struct part *part, unsigned class, struct chain chain);

/* The newest batch of the class; count 0 when there is none. */
HIDDEN struct chain depot_take(struct part *part, unsigned class);

/* The oldest batch of the class, if it has no more than `most` blocks; count 0 when there is none. */
HIDDEN struct chain depot_take_oldest(struct part *part, unsigned class, unsigned most);

/* The first blocks of the class's oldest batch, at most `most`, with `behind` behind them. If a link of the batch
 * leads astray, *astray becomes the whole batch, and `behind` is returned alone. The caller returns *astray, which
 * tells it. */
HIDDEN struct chain depot_take_some(struct part *part, unsigned class, unsigned most, struct chain behind,
                                    struct chain *astray);

/* Blocks of the class that were there all the time since this was asked last. */
HIDDEN unsigned depot_stale(struct part *part, unsigned class);

#endif
