/* sample: see sample.h.                                                                             floor: heap */
#include "heap/sample.h"

#include "heap/fast.h"
#include "heap/tcache.h"
#include "heap/timing.h"

_Static_assert(SMALL_MAX <= UINT16_MAX, "sizes of what is timed");

/* Detaches the list again if more samples are due. It counts those of an epoch's heap at once, because that heap may
 * serve another epoch before its next visit. */
static COLD void look_after(struct heap *heap, unsigned class) {
  if (heap->bins[class].due) tcache_detach(heap, class, 0);
  if (heap->arena) timing_count(heap);
}

void *sample_detached(struct heap *heap, unsigned class, size_t requested) {
  struct sampling *sampling = &heap->sampling;
  heap->list[class] = tcache_attach(heap);
  if (UNLIKELY(sampling->timings == TIMED)) timing_count(heap); /* no visit has counted since the last sample */
  uint64_t start = ticks_begin();
  void *block = fast_pop(heap, class, pages.key);
  uint64_t ticks = ticks_end() - start;
  if (UNLIKELY(!block)) return NULL;
  heap->store->timed[sampling->timings++] = timing_of(start, ticks, requested, class_size(class));
  if (UNLIKELY(sampling->urgent)) look_after(heap, class);
  return block;
}
