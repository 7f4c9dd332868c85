/* sample: see sample.h.                                                                             floor: heap */
#include "heap/sample.h"

#include "heap/bump.h"
#include "heap/fast.h"
#include "heap/tcache.h"
#include "heap/timing.h"

static struct timed timed_of(uint64_t start, uint64_t ticks, size_t requested, size_t usable) {
  return (struct timed){start, (uint32_t)min_size(ticks, UINT32_MAX), (uint16_t)requested, (uint16_t)usable};
}
_Static_assert(SMALL_MAX <= UINT16_MAX && BUMP_MOST <= UINT16_MAX, "sizes of what is timed");

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
  void *block = fast_pop(heap, class, (uintptr_t)pages.base);
  uint64_t ticks = ticks_end() - start;
  if (UNLIKELY(!block)) return NULL;
  heap->store->timed[sampling->timings++] = timed_of(start, ticks, requested, class_size(class));
  if (UNLIKELY(sampling->urgent)) look_after(heap, class);
  return block;
}

void *sample_bump(struct heap *heap, size_t size) {
  uint64_t start = ticks_begin();
  void *block = bump_take(heap, size);
  uint64_t ticks = ticks_end() - start;
  if (!block) return NULL;
  counters_stage(heap->counters, PATH_FAST);
  struct timed timed = timed_of(start, ticks, size, round_up(size, CHUNK_UNIT));
  timing_count_fast(heap, &timed, 1);
  return block;
}
