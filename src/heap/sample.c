/* sample: see sample.h.                                                                             floor: heap */
#include "heap/sample.h"

#include "heap/fast.h"
#include "heap/tcache.h"
#include "heap/timing.h"

_Static_assert(SMALL_MAX <= UINT16_MAX, "sizes of what is timed");

/* An epoch's heap may be another's before its next visit. */
static COLD void look_after(struct heap *heap, unsigned class) {
  if (heap->bins[class].due) tcache_detach(heap, class, 0);
  if (heap->arena) timing_count(heap);
}

void *sample_detached(struct heap *heap, unsigned class, size_t requested) {
  struct sampling *sampling = &heap->sampling;
  heap->list[class] = tcache_attach(heap);
  if (UNLIKELY(sampling->timings == TIMED)) timing_count(heap); /* no visit came between it and the last one */
  uint64_t start = ticks_begin();
  void *block = fast_pop(heap, class, (uintptr_t)pages.base);
  uint64_t ticks = ticks_end() - start;
  if (UNLIKELY(!block)) return NULL;
  heap->store->timed[sampling->timings++] = timing_of(start, ticks, requested, class_size(class));
  if (UNLIKELY(sampling->urgent)) look_after(heap, class);
  return block;
}
