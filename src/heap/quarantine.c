/* quarantine: see quarantine.h.                                                                     floor: heap */
#include "heap/quarantine.h"

#include "base/options.h"
#include "heap/misuse.h"
#include "heap/remote.h"
#include "heap/tcache.h"
#include <string.h>

#define FILL       0xde /* eight such bytes are no valid address */
#define FILL_START (2 * sizeof(void *))
#define BATCH      16

static void enter(struct quarantine *ring, unsigned class, void *block, unsigned tag) {
  memset((char *)block + FILL_START, FILL, class_size(class) - FILL_START);
  block_link(block, CHAIN_END);
  block_mark(block, block_waiting_key(block));
  ring->blocks[(ring->first + ring->count) % QUARANTINE_MOST] = (uintptr_t)block + tag;
  atomic_signal_fence(memory_order_seq_cst); /* see is_beyond */
  ring->count++;
  ring->bytes += class_size(class);
}

/* Compares sixteen bytes at a time, since each class's size is a multiple of that. */
static bool is_filled(const uint64_t *from, const uint64_t *end) {
  const uint64_t fill = UINT64_MAX / UINT8_MAX * FILL;
  uint64_t change = 0;
  for (; from < end; from += 2) change |= (from[0] ^ fill) | (from[1] ^ fill);
  return change == 0;
}

/* Returns the first byte that changed, or `size`. */
static size_t find_change(void *block, size_t size) {
  const unsigned char *bytes = block;
  if (link_decode(block, (uintptr_t)block_words(block)[0]) != CHAIN_END) return 0;
  if (LIKELY(is_filled((const void *)(bytes + FILL_START), (const void *)(bytes + size)))) return size;
  size_t at = FILL_START;
  while (bytes[at] == FILL) at++;
  return at;
}

static void leave(struct heap *heap, uintptr_t entry) {
  void *block = (void *)(entry & ~(uintptr_t)1);
  unsigned class = pages_run_of(block)->class;
  bool is_own = block == (void *)entry, is_ours = (uintptr_t)block_words(block)[1] == block_waiting_key(block);
  size_t size = class_size(class), at = find_change(block, size);
  if (is_own) heap->quarantine->own[class]--;
  if (!is_ours) { /* its key is gone: it was freed twice and has left before, or the program wrote to it */
    if (is_own) tcache_lose(heap, class, 1);
    misuse_freed(block);
    return;
  }
  if (at < size) misuse_written(block, at);
  block_mark_free(block);
  if (is_own) {
    block_link(block, heap->list[class]);
    heap->list[class] = block;
  } else {
    heap_push_remote(heap, class, block);
  }
}

static void leave_all(struct heap *heap, uintptr_t *batch, unsigned count) {
  uint64_t sequence = secret_draw();
  for (; count > 0; count--) {
    unsigned i = secret_below(&sequence, count);
    leave(heap, batch[i]);
    batch[i] = batch[count - 1];
  }
}

/* A handler that calls exit or fork goes on with the ring as it finds it: a block may be missing there, and its bytes
 * may still count. */
static bool is_beyond(const struct quarantine *ring, size_t bytes, unsigned blocks) {
  return ring->count != 0 && (ring->bytes > bytes || ring->count > blocks);
}

static void shrink(struct heap *heap, size_t bytes, unsigned blocks) {
  struct quarantine *ring = heap->quarantine;
  while (is_beyond(ring, bytes, blocks)) {
    uintptr_t batch[BATCH];
    unsigned count = 0;
    while (count < BATCH && is_beyond(ring, bytes, blocks)) {
      uintptr_t entry = batch[count++] = ring->blocks[ring->first];
      ring->count--;
      atomic_signal_fence(memory_order_seq_cst);
      ring->first = (ring->first + 1) % QUARANTINE_MOST;
      ring->bytes -= class_size(pages_run_of((void *)entry)->class);
    }
    atomic_signal_fence(memory_order_seq_cst);
    leave_all(heap, batch, count);
  }
}

/* Takes out an eighth at a time, so that there are enough blocks to shuffle. */
INLINE void shrink_if_full(struct heap *heap) {
  const struct quarantine *ring = heap->quarantine;
  if (UNLIKELY(ring->bytes > options.quarantine_bytes || ring->count == QUARANTINE_MOST))
    shrink(heap, options.quarantine_bytes / 8 * 7, QUARANTINE_MOST / 8 * 7);
}

void quarantine_enter(struct heap *heap, unsigned class, void *block) {
  enter(heap->quarantine, class, block, 0);
  heap->quarantine->own[class]++;
  shrink_if_full(heap);
}

void quarantine_enter_remote(struct heap *heap, unsigned class, void *block) {
  enter(heap->quarantine, class, block, 1);
  shrink_if_full(heap);
}

void quarantine_empty(struct heap *heap) { shrink(heap, 0, 0); }

void quarantine_count_remote(const struct heap *heap, uint64_t count[CLASSES]) {
  const struct quarantine *ring = heap->quarantine;
  for (unsigned i = 0; i < ring->count; i++) {
    uintptr_t entry = ring->blocks[(ring->first + i) % QUARANTINE_MOST];
    if (entry & 1) count[pages_run_of((void *)entry)->class]++;
  }
}
