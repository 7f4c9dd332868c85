/* span: granules of heaps for epochs.                                                               floor: heap
 *
 *   span -> granule: [ heap | heap | heap | ... ]       HEAP_SPAN heaps; some in use, some blank, some never cut
 *
 * A heap of an epoch lies with others in a granule. SPANS_KEPT granules without a heap in use are kept; the memory of
 * others goes back to the system, and what their heaps had counted stays in heaps_folded_*.
 *
 * Threads: everything under heaps_lock. Memory goes back under walk_lock and heaps_lock, so whoever holds one of the
 * two may walk. */
#ifndef TSLAB_HEAP_SPAN_H
#define TSLAB_HEAP_SPAN_H

#include "heap/heap.h"

#define HEAP_SPAN  (GRANULE / sizeof(struct heap))
#define SPANS_KEPT 3

/* Returns a heap of an epoch that is not in use, or NULL without memory. Sets *grows when its granule had no memory and
 * is not the first. Caller holds heaps_lock. */
HIDDEN struct heap *span_take_heap(bool *grows);
HIDDEN void span_return_heap(struct heap *heap);
HIDDEN bool spans_are_many(void); /* Returns true if more than SPANS_KEPT are without a heap in use. */

/* Gives back the memory of one span, unless a thread walks over heaps now. No lock held. */
HIDDEN void spans_trim_one(void);

/* Gives back the memory of granules that are kept, as far as they were not needed since this was last called, or of all
 * of them. Returns bytes. */
HIDDEN size_t heaps_trim(bool all);

/* All heaps of epochs whose memory is there. Caller holds walk_lock, or heaps_lock: under both of them memory of heaps
 * goes back to the system. */
HIDDEN struct heap *heaps_first_of_epochs(void);
HIDDEN struct heap *heaps_next_of_epochs(struct heap *heap);

/* Blocks that heaps of epochs had handed out in chunks, and how often their locks were taken, before their memory went
 * back. Under walk_lock. */
HIDDEN extern uint64_t heaps_folded_bumped;
HIDDEN extern struct lock_totals heaps_folded_locks;

/* In a fork child that froze. */
HIDDEN void spans_freeze(void);

#endif
