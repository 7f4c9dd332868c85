/* chunk_cache: chunks that went with an epoch's end, kept by its part for the next ones.             floor: heap
 *
 * A request of a few chunks gives up all but the one that the next request begins in. Through the reserve each of them
 * would take the locks that all threads share twice; here it is the part's own.
 *
 * What a part kept at most since the scavenger's last look counts as reserve, so that taking and putting by turns is
 * nobody else's business. What stood still since then goes back to the kernel.
 *
 * A chunk in here is RUN_RESERVED, leads nowhere, and its bits are 0.
 * Threads: under part->lock. Only parts of epochs have any. */
#ifndef TSLAB_HEAP_CHUNK_CACHE_H
#define TSLAB_HEAP_CHUNK_CACHE_H

#include "heap/part.h"

/* The one that came last, as chunk_new leaves it, but for an epoch; NULL: none. By the part's thread. */
HIDDEN struct run *chunk_cache_take(struct part *part);

/* Keeps a buried chunk that is in no list; false, and nothing happened, without room. By the part's thread. */
HIDDEN bool chunk_cache_put(struct part *part, struct run *chunk);

/* Gives back what stood still since this was asked last, or all. Returns bytes. From any thread. */
HIDDEN size_t chunk_cache_flush(struct part *part, bool all);

#endif
