/* sample: serves and times the mallocs of lists that were drawn as samples.                         floor: heap
 *
 * heap/timing.h says which mallocs these are; heap/bump.c serves those of chunks. Threads: the heap's own. */
#ifndef TSLAB_HEAP_SAMPLE_H
#define TSLAB_HEAP_SAMPLE_H

#include "heap/tcache.h"
#include "heap/timing.h"

#if TSLAB_TELEMETRY

/* sample_is_due returns true if the class's list was detached to time this call. sample_detached then serves the call.
 * It returns NULL if the head of the list is damaged; the list is then attached again. */
INLINE bool sample_is_due(const struct heap *heap, unsigned class) {
  return tcache_is_detached(heap, class) && heap->list[class] == CHAIN_END;
}
HIDDEN void *sample_detached(struct heap *heap, unsigned class, size_t requested);

#else

INLINE bool sample_is_due(const struct heap *heap, unsigned class) { return (void)heap, (void)class, false; }
INLINE void *sample_detached(struct heap *heap, unsigned class, size_t requested) {
  return (void)heap, (void)class, (void)requested, NULL;
}

#endif
#endif
