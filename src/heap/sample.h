/* sample: serves the mallocs of the lists that are drawn to be timed.                               floor: heap
 *
 * heap/timing.h says which these are; heap/bump.c serves those of chunks. Threads: the heap's own. */
#ifndef TSLAB_HEAP_SAMPLE_H
#define TSLAB_HEAP_SAMPLE_H

#include "heap/timing.h"

#if TSLAB_TELEMETRY

/* Returns true if the class's list was detached for this call. sample_detached serves it then; NULL means that the head
 * of the list is damaged, and on the list. */
INLINE bool sample_is_due(const struct heap *heap, unsigned class) {
  return heap->sampling.detached && heap->sampling.class == class && heap->list[class] == CHAIN_END;
}
HIDDEN void *sample_detached(struct heap *heap, unsigned class, size_t requested);

#else

INLINE bool sample_is_due(const struct heap *heap, unsigned class) { return (void)heap, (void)class, false; }
INLINE void *sample_detached(struct heap *heap, unsigned class, size_t requested) {
  return (void)heap, (void)class, (void)requested, NULL;
}

#endif
#endif
