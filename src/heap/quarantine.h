/* quarantine: freed blocks wait before they serve again; the hardened build's.                      floor: heap
 *
 *   free -> [ newest ... ring of blocks ... oldest ] -> sixteen at a time, shuffled -> list, or the other heap's slab
 *
 * A block that waits is counted as freed: if it is of the heap's own slabs, its list's length has it, though it is not
 * on the list yet. Nobody looks at its words; all of it is filled, and compared when it leaves: what is not as it was
 * left was written to by somebody who should not have it any more. A ring is at most options.quarantine_bytes and
 * QUARANTINE_MOST blocks long; there is one for each heap.
 *
 * Invariant: own[class] of the waiting blocks are of the heap's lists.
 * Threads:   the heap's own, or who may fold its lists. */
#ifndef TSLAB_HEAP_QUARANTINE_H
#define TSLAB_HEAP_QUARANTINE_H

#include "heap/heap.h"

/* A block that the heap's list of the class has counted, or that its thread freed for another heap. What is too much
 * leaves. No lock held. */
HIDDEN void quarantine_enter(struct heap *heap, unsigned class, void *block);
HIDDEN void quarantine_enter_remote(struct heap *heap, unsigned class, void *block);

/* All leave. No lock of the heap's held. */
HIDDEN void quarantine_empty(struct heap *heap);

/* Adds to each class those that go to another heap's slab. */
HIDDEN void quarantine_count_remote(const struct heap *heap, uint64_t count[CLASSES]);

#endif
