/* totals: the counts and holdings of a heap, or of all heaps of epochs, by class.                   floor: heap
 *
 * Threads: any that holds walk_lock. */
#ifndef TSLAB_HEAP_TOTALS_H
#define TSLAB_HEAP_TOTALS_H

#include "heap/heap.h"

/* Read the counts and holdings of an active heap in one class, or of all heaps of epochs. They take a heap's lock, so
 * they are exact except for its thread's calls of this moment. Caller holds walk_lock. */
struct class_totals {
  uint64_t allocations, frees, remote_frees, refills, overflows, cached, slabs, born, retired;
};
HIDDEN void heap_totals(struct heap *heap, unsigned class, struct class_totals *out);
HIDDEN void heap_epoch_totals(unsigned class, struct class_totals *out);

#endif
