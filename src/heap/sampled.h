/* sampled: serves the mallocs that a class drew for the heap profile.                               floor: heap
 *
 * Their blocks come from slabs of sampled_heap, which are owner to no thread, so that each free takes a slow path.
 * Threads: any; the slabs are under sampled_heap.lock. */
#ifndef TSLAB_HEAP_SAMPLED_H
#define TSLAB_HEAP_SAMPLED_H

#include "heap/timing.h"

#if TSLAB_TELEMETRY

/* Blocks are samples by this interval from now on: at least PROFILE_LEAST_BYTES, or PROFILE_PAUSED (heap/profile.h).
 * What a class drew by another interval is drawn anew at its next visit; what a chunk did stays until its point, or its
 * end. Starts the profile if there is none. Returns false without memory. Caller holds no lock, and is one thread at a
 * time. */
HIDDEN bool sampled_start(uint32_t interval);

/* A block of the class that is a sample of this call, drawn by the interval. NULL without memory. No lock held. */
HIDDEN void *sampled_take(struct heap *heap, unsigned class, size_t size, uint32_t interval);

/* A malloc found no block on the list. Returns a block if that was for the cut: the sample or the marked one. NULL: the
 * list is empty, or there was no memory for a sample. No lock held. */
HIDDEN void *sampled_malloc(struct heap *heap, unsigned class, size_t size);

#else

INLINE bool sampled_start(uint32_t interval) { return (void)interval, false; }
INLINE void *sampled_malloc(struct heap *heap, unsigned class, size_t size) {
  return (void)heap, (void)class, (void)size, NULL;
}

#endif
#endif
