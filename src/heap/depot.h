/* depot: full lists of free blocks put by, whole, for when a list runs empty.                        floor: heap
 *
 * A list moves in and out in O(1), so a thread that frees and allocates in long waves pays for its slabs' lines only
 * beyond options.cache_bytes. The newest batch of a class comes out first; the oldest goes to the slabs first. Under
 * part->lock. */
#ifndef TSLAB_HEAP_DEPOT_H
#define TSLAB_HEAP_DEPOT_H

#include "heap/part.h"

/* Puts a chain by; false when there is no room for it, and nothing happened. */
HIDDEN bool depot_put(struct part *part, unsigned class, struct chain chain);

/* The newest batch of the class; count 0 when there is none. */
HIDDEN struct chain depot_take(struct part *part, unsigned class);

/* The oldest batch of the class, or of the next class that has one; count 0 when the depot is empty. Sets *class. */
HIDDEN struct chain depot_take_oldest(struct part *part, unsigned *class);

#endif
