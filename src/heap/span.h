/* span: granules of heaps for epochs.                                                               floor: heap
 *
 *   span -> granule: [ heap | heap | heap | ... ]       HEAP_SPAN heaps; some in use, some blank, some never cut
 *
 * A heap of an epoch lies with others in a granule. The library keeps SPANS_KEPT granules without a heap in use. The
 * memory of others goes back to the kernel, and the counts of their heaps stay in heaps_folded_*.
 *
 * Threads: heaps_lock protects everything. Memory goes back under walk_lock and heaps_lock, so a thread that holds one
 * of these may walk. */
#ifndef TSLAB_HEAP_SPAN_H
#define TSLAB_HEAP_SPAN_H

#include "heap/heap.h"

#define HEAP_SPAN  (GRANULE / sizeof(struct heap))
#define SPANS_KEPT 3

/* Returns an unused heap of an epoch, or NULL without memory. Sets *grows if its granule had no memory and is not the
 * first. Caller holds heaps_lock. */
HIDDEN struct heap *span_take_heap(bool *grows);
HIDDEN void span_return_heap(struct heap *heap);
HIDDEN bool spans_are_many(void); /* true if more than SPANS_KEPT have no heap in use */

/* Gives back the memory of one span, unless a thread walks over heaps now. Caller holds no lock. */
HIDDEN void spans_trim_one(void);

/* Gives back the memory of the kept granules that were not needed since the last call, or of all. Returns the bytes. */
HIDDEN size_t heaps_trim(bool all);

/* Walk over all heaps of epochs that have memory. Caller holds walk_lock or heaps_lock, because memory of heaps goes
 * back under both. */
HIDDEN struct heap *heaps_first_of_epochs(void);
HIDDEN struct heap *heaps_next_of_epochs(struct heap *heap);

/* The counts of heaps of epochs whose memory went back: blocks handed out in chunks, and the counts of their locks.
 * walk_lock protects them. */
HIDDEN extern uint64_t heaps_folded_bumped;
HIDDEN extern struct lock_totals heaps_folded_locks;

/* For a fork child that froze. */
HIDDEN void spans_freeze(void);

#endif
