/* remote: see remote.h.                                                                             floor: heap */
#include "heap/remote.h"

#include "heap/bins.h"
#include "heap/timing.h"

/* Counts frees by threads without a heap: the first few of a thread, and those after its heap has ended. Many threads
 * may end at the same moment, so the address of a thread's storage picks the counters that it adds to. */
#define UNOWNED_COUNTERS 16
static struct unowned {
  _Atomic uint64_t frees[CLASSES] ALIGNED(CACHE_LINE);
} unowned_frees[UNOWNED_COUNTERS];

static unsigned unowned_index(void) {
  uint32_t page = (uint32_t)((uintptr_t)&current_heap >> 12); /* two threads' storage is at least a page apart */
  return page * UINT32_C(2654435769) >> 28;                    /* by the golden ratio: spreads equal distances */
}
_Static_assert(UNOWNED_COUNTERS == 1 << (32 - 28), "the index has four bits");

void heap_push_remote(struct heap *heap, unsigned class, void *block) {
  struct remote *remote = &heap->store->remote;
  store_add_remote(heap->store, block);
  remote->room -= class_tables()->lines[class];
  if (remote->room > 0) return;
  struct timing timing;
  timing_begin_path(&timing);
  heap_flush_remote(heap);
  timing_end_path(&timing, PATH_FLUSH);
}

void remote_free_at_once(struct lock *gate, void *block) {
  block_mark_free(block);
  block_link(block, CHAIN_END);
  bins_return(gate, (struct chain){block, 1});
}

/* Counts the free before the push: a fork child that has only the count takes the block for lost, and counts it as
 * leaked. */
void remote_free_unowned(struct run *slab, void *block) {
  shared_add(&unowned_frees[unowned_index()].frees[slab->class], 1);
  remote_free_at_once(NULL, block);
}

void heap_flush_remote(struct heap *heap) {
  struct remote *remote = &heap->store->remote;
  unsigned count = remote->count;
  if (count == 0) return;
  remote->count = 0;
  remote->room = REMOTE_BYTES;
  bins_return_batch(heap, heap->store->remote_blocks, count);
}

uint64_t unowned_frees_of(unsigned class) {
  uint64_t frees = 0;
  for (unsigned i = 0; i < UNOWNED_COUNTERS; i++)
    frees += atomic_load_explicit(&unowned_frees[i].frees[class], memory_order_relaxed);
  return frees;
}
