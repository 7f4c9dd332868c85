/* sample: serves and times the mallocs of the fast path that were drawn as samples.                 floor: heap
 *
 * heap/timing.h says which mallocs these are. Threads: the heap's own. */
#ifndef TSLAB_HEAP_SAMPLE_H
#define TSLAB_HEAP_SAMPLE_H

#include "heap/bump.h"
#include "heap/timing.h"

#if TSLAB_TELEMETRY

/* sample_is_due returns true if the class's list was detached to time this call. sample_detached then serves the call.
 * It returns NULL if the head of the list is damaged; the list is then attached again. */
INLINE bool sample_is_due(const struct heap *heap, unsigned class) {
  return heap->sampling.detached && heap->sampling.class == class && heap->list[class] == CHAIN_END;
}
HIDDEN void *sample_detached(struct heap *heap, unsigned class, size_t requested);

/* Calls bump_take, and times it if it succeeds. */
HIDDEN void *sample_bump(struct heap *heap, size_t size);

#else

INLINE bool sample_is_due(const struct heap *heap, unsigned class) { return (void)heap, (void)class, false; }
INLINE void *sample_detached(struct heap *heap, unsigned class, size_t requested) {
  return (void)heap, (void)class, (void)requested, NULL;
}
INLINE void *sample_bump(struct heap *heap, size_t size) { return bump_take(heap, size); }

#endif
#endif
