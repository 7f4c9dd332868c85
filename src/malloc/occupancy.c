/* occupancy: says how full the slab, chunk or run of a block is.                                    floor: malloc
 *
 * Threads: any, without a lock. A run may become one of another kind between two reads. Then the row mixes numbers of
 * both. No read leaves our tables, which are never unmapped. */
#include "epoch/epoch.h"
#include "heap/guard.h"
#include "process/process.h"
#include "slab/chunk.h"
#include "slab/slab.h"
#include "tslab/tslab.h"
#include <errno.h>

_Static_assert(sizeof(tslab_slab_use) % 128 == 0, "fixed multiples");

static void look_at_slab(const struct run *run, const struct heap *heap, tslab_slab_use *out) {
  unsigned class = LOAD_RACING(run->class);
  if (class >= CLASSES) return; /* the run is no slab any more */
  uint64_t word = atomic_load_explicit(&run->word, memory_order_relaxed);
  unsigned linked = slab_linked(word), free = slab_count(word);
  out->kind = TSLAB_USE_SLAB;
  out->capacity_bytes = LOAD_RACING(run->capacity) * class_size(class);
  out->used_blocks = linked > free ? linked - free : 0;
  out->used_bytes = out->used_blocks * class_size(class);
  out->is_current = heap && __atomic_load_n(&heap_bin(heap, class)->first, __ATOMIC_RELAXED) == run_index(run);
}

static void look_at_chunk(const struct run *run, const struct heap *heap, tslab_slab_use *out) {
  struct chunk_live live = chunk_live(run);
  out->kind = TSLAB_USE_CHUNK;
  out->capacity_bytes = chunk_capacity(run);
  out->used_blocks = live.blocks;
  out->used_bytes = live.bytes;
  out->is_current = heap && __atomic_load_n(&heap->bump.chunk, __ATOMIC_RELAXED) == run;
}

static void look_at_large(const struct run *run, tslab_slab_use *out) {
  out->kind = TSLAB_USE_LARGE;
  out->capacity_bytes = out->used_bytes = LOAD_RACING(run->size);
  out->used_blocks = 1;
}

static tslab_slab_use look_at(const struct run *run) {
  const struct heap *heap = atomic_load_explicit(&run->heap, memory_order_relaxed);
  uint32_t epoch = run->epoch;
  uint8_t kind = __atomic_load_n(&run->kind, __ATOMIC_ACQUIRE); /* pairs with chunk_new */
  tslab_slab_use use = {0};
  if (epoch > arenas_made()) return use; /* the granule was split meanwhile */
  if (kind == RUN_SLAB) look_at_slab(run, heap, &use);
  if (kind == RUN_CHUNK) look_at_chunk(run, heap, &use);
  if (kind == RUN_LARGE) look_at_large(run, &use);
  if (use.kind == TSLAB_USE_NONE) return use;
  use.start = (uintptr_t)(kind == RUN_CHUNK ? chunk_start(run) : run_start(run));
  use.slab_bytes = run_bytes(run);
  use.epoch = epoch ? epoch_id(epoch_at(epoch)) : 0;
  return use;
}

int tslab_occupancy(void *const *blocks, size_t count, tslab_slab_use *out) {
  const struct run *before = NULL;
  if (!blocks || !out) return EINVAL;
  for (size_t i = 0; i < count; i++) {
    const struct run *run = process_has_started() ? pages_run_of(guard_behind(blocks[i])) : NULL;
    if (!run) out[i] = (tslab_slab_use){0};
    else if (run == before) out[i] = out[i - 1];
    else out[i] = look_at(run);
    before = run;
  }
  return 0;
}
