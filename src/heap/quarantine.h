/* quarantine: freed blocks wait before they serve again; the hardened build's.                       floor: heap
 *
 *   free -> [ newest ... ring of blocks ... oldest ] -> sixteen at a time, shuffled -> list, or the other part's slab
 *
 * A block that waits is counted as freed: if it is of the part's own slabs, its list's length has it, though it is not
 * on the list yet. Nobody looks at its words; all of it is filled, and compared when it leaves: what is not as it was
 * left was written to by somebody who should not have it any more. A ring is at most options.quarantine_bytes and
 * QUARANTINE_MOST blocks long; there is one for each part.
 *
 * Invariant: own[class] of the waiting blocks are of the part's lists.
 * Threads:   the part's own, or who may settle its lists. */
#ifndef TSLAB_HEAP_QUARANTINE_H
#define TSLAB_HEAP_QUARANTINE_H

#include "heap/part.h"

#define QUARANTINE_MOST 1024

struct quarantine {
  uint32_t first, count; /* of blocks */
  size_t bytes;
  uint16_t own[CLASSES];
  uintptr_t blocks[QUARANTINE_MOST]; /* addresses; 1 more for one that goes to another part's slab */
} ALIGNED(PART_ALIGNMENT);

/* Of the class's list. */
INLINE unsigned quarantine_of(const struct part *part, unsigned class) {
  return TSLAB_HARDENED ? part->quarantine->own[class] : 0;
}

/* A block that the part's list of the class has counted, or that its thread freed for another part. What is too much
 * leaves. No lock held. */
HIDDEN void quarantine_enter(struct part *part, unsigned class, void *block);
HIDDEN void quarantine_enter_remote(struct part *part, unsigned class, void *block);

/* All leave. No lock of the part's held. */
HIDDEN void quarantine_empty(struct part *part);

/* Adds to each class those that go to another part's slab. */
HIDDEN void quarantine_count_remote(const struct part *part, uint64_t count[CLASSES]);

#endif
