/* quarantine: lets freed blocks of a hardened build wait before malloc uses them again.             floor: heap
 *
 *   free -> [ newest ... ring of blocks ... oldest ] -> sixteen at a time, shuffled -> list, or the other heap's slab
 *
 * A block that waits counts as freed. If the heap owns its slab, the list's length counts it, though it is not on the
 * list yet. The library fills the whole block, and compares it when it leaves: a change means that the program wrote to
 * a freed block. Each heap has a ring of at most options.quarantine_bytes and QUARANTINE_MOST blocks.
 *
 * Invariant: own[class] of the waiting blocks count in the heap's list of the class.
 * Threads:   the heap's own, or one that may fold its lists. */
#ifndef TSLAB_HEAP_QUARANTINE_H
#define TSLAB_HEAP_QUARANTINE_H

#include "heap/heap.h"

#define QUARANTINE_MOST 1024

struct quarantine {
  uint32_t first, count; /* in `blocks` */
  size_t bytes;
  uint16_t own[CLASSES];
  uintptr_t blocks[QUARANTINE_MOST]; /* addresses, plus 1 for a block that goes to another heap's slab */
} ALIGNED(HEAP_ALIGNMENT);

/* Returns how many blocks of the class's list wait. */
INLINE unsigned quarantine_of(const struct heap *heap, unsigned class) {
  return TSLAB_HARDENED ? heap->quarantine->own[class] : 0;
}

/* Take a block that the heap's list of the class has counted, or that its thread freed for another heap. Blocks beyond
 * the limits leave. Caller holds no lock. */
HIDDEN void quarantine_enter(struct heap *heap, unsigned class, void *block);
HIDDEN void quarantine_enter_remote(struct heap *heap, unsigned class, void *block);

/* Lets all blocks leave. Caller does not hold the heap's lock. */
HIDDEN void quarantine_empty(struct heap *heap);

/* Adds to each class the blocks that go to another heap's slab. */
HIDDEN void quarantine_count_remote(const struct heap *heap, uint64_t count[CLASSES]);

#endif
