/* draw: random numbers, and how many calls pass until the next sample.                              floor: heap
 *
 * Threads: each thread has its own numbers. */
#ifndef TSLAB_HEAP_DRAW_H
#define TSLAB_HEAP_DRAW_H

#include "heap/heap.h"

/* Returns a number below `bound`, or 0 for the bound 0. */
HIDDEN uint32_t draw_below(uint32_t bound);

/* Returns a number of a geometric distribution with that mean, at least 1. *state is not 0. */
HIDDEN uint32_t draw_geometric(uint64_t *state, size_t mean);

/* Returns how many mallocs pass until one is timed; INT32_MAX if sampling is off. */
HIDDEN int32_t draw_mallocs(struct heap *heap);

#endif
