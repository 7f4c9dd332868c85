/* sampled: serves the mallocs that a class drew for the heap profile.                               floor: heap
 *
 * Their blocks come from slabs of sampled_heap. The pagemap names no owner for these slabs, so that each free takes a
 * slow path. A slab belongs to one epoch, so a sample of an epoch's heap is a large block instead, of the class's size:
 * a granule, of which the program touches a page or a few. While there are guards it has the size that the call asks
 * for, as the guarded block in front of it has. It counts in the epoch's budget, so an epoch that has one, or whose
 * parent does, gets no such samples.
 *
 * Threads: any; sampled_heap.lock protects the slabs. */
#ifndef TSLAB_HEAP_SAMPLED_H
#define TSLAB_HEAP_SAMPLED_H

#include "heap/cut.h"

#if TSLAB_TELEMETRY

/* Takes samples by this interval from now on: at least PROFILE_LEAST_BYTES, or PROFILE_PAUSED (heap/profile.h). A class
 * draws anew at its next visit, unless its point may lie within the calls that its list serves; a chunk keeps its draw
 * until its point or its end. If not `in_chunks`, chunks draw nothing more. Starts the profile if there is none.
 * Returns false without memory. Caller holds no lock of this floor, and only one thread calls at a time. */
HIDDEN bool sampled_start(uint32_t interval, bool in_chunks);

/* Returns a block of the class as a sample of this call, drawn by the interval, or NULL without memory. Caller holds no
 * lock. */
HIDDEN void *sampled_take(struct heap *heap, unsigned class, size_t size, uint32_t interval);

/* Serves a malloc that found no block on the list. If the cut was the reason, it returns the sample or the marked
 * block. NULL: the list is empty, or there was no memory for a sample. Caller holds no lock. */
HIDDEN void *sampled_malloc_slow(struct heap *heap, unsigned class, size_t size);
INLINE void *sampled_malloc(struct heap *heap, unsigned class, size_t size) {
  if (!heap_has_store(heap)) return NULL;
  const struct draw *draw = &heap->store->draws[class];
  if (LIKELY(draw->interval && !draw->marked && cut_left(heap, draw, class) > 0)) return NULL;
  return sampled_malloc_slow(heap, class, size);
}

#else

INLINE bool sampled_start(uint32_t interval, bool in_chunks) { return (void)interval, (void)in_chunks, false; }
INLINE void *sampled_malloc(struct heap *heap, unsigned class, size_t size) {
  return (void)heap, (void)class, (void)size, NULL;
}

#endif
#endif
