/* totals: what a heap, or all heaps of epochs, did and hold, by class.                              floor: heap
 *
 * Threads: Any thread that holds walk_lock. */
#ifndef TSLAB_HEAP_TOTALS_H
#define TSLAB_HEAP_TOTALS_H

#include "heap/heap.h"

/* The work and the holdings of an active heap in one class. They are read under its lock, so they are exact but for its
 * thread's calls of this moment. Caller holds walk_lock, as for all heaps of epochs. */
struct class_totals {
  uint64_t allocations, frees, remote_frees, refills, overflows, cached, slabs, born, retired;
};
HIDDEN void heap_totals(struct heap *heap, unsigned class, struct class_totals *out);
HIDDEN void heap_epoch_totals(unsigned class, struct class_totals *out);

#endif
