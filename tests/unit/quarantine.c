/* quarantine: a block waits before it is used again, and its list counts it; all waiting blocks leave, once each and in
 * random order; the library reports a block that was written to meanwhile, or is there twice; bounds hold. */
#include "unit.h"

#include "base/options.h"
#include "heap/fast.h"
#include "heap/quarantine.h"
#include "heap/refill.h"
#include "heap/registry.h"
#include "heap/remote.h"
#include "heap/tcache.h"

enum { CLASS = 6, MOST = 3 * QUARANTINE_MOST };

static struct heap *here, *other;
static char *blocks[MOST];
static size_t size;

static void *allocate(void) {
  void *const block = fast_pop(current_heap, CLASS, pages.key);
  return block ? block : heap_refill(current_heap, CLASS);
}

static void release(void *block) {
  struct fast_seen seen;
  const enum fast_free how = fast_push(block, &seen);
  CHECK(how == FREED || how == LIST_FULL || how == NOT_HERE);
  if (how == LIST_FULL) heap_overflow(current_heap, CLASS, block);
  if (how == NOT_HERE) heap_free_remote(current_heap, pages_run_of(block), block);
}

static void take(unsigned count) {
  for (unsigned i = 0; i < count; i++) CHECK((blocks[i] = allocate()) != NULL);
}

static bool waits(void *block) { return (uintptr_t)block_words(block)[1] == block_waiting_key(block); }

static unsigned on_list(const struct heap *heap) {
  unsigned length = 0;
  for (void *b = heap->list[CLASS]; b != CHAIN_END; b = block_next(b), length++) CHECK(block_is_intact(b));
  return length;
}

/* The invariant, and both bounds. */
static void check_ring(void) {
  const struct quarantine *ring = here->quarantine;
  uint64_t remote[CLASSES] = {0};
  quarantine_count_remote(here, remote);
  CHECK_COUNT(ring->count, ==, ring->own[CLASS] + remote[CLASS]);
  CHECK_COUNT(ring->bytes, ==, ring->count * size);
  CHECK_COUNT(ring->bytes, <=, options.quarantine_bytes);
  CHECK_COUNT(ring->count, <, QUARANTINE_MOST);
  CHECK_COUNT(tcache_length(here, CLASS), ==, on_list(here));
}

/* A freed block counts as freed in the statistics, in quarantine or not. */
static void counts_as_freed(void) {
  const struct tcache_totals before = tcache_totals(here, CLASS);
  take(100);
  for (unsigned i = 0; i < 100; i++) {
    memset(blocks[i], 0x11, size);
    release(blocks[i]);
    CHECK(waits(blocks[i]) && slab_refuses(blocks[i]));
    for (size_t at = 2 * sizeof(void *); at < size; at++) CHECK(blocks[i][at] != 0x11);
    CHECK_COUNT(tcache_totals(here, CLASS).frees, ==, before.frees + i + 1);
    CHECK_COUNT(quarantine_of(here, CLASS), ==, i + 1);
    check_ring();
  }
  const unsigned length = on_list(here);
  quarantine_empty(here);
  check_ring();
  CHECK_COUNT(on_list(here), ==, length + 100);
  CHECK_COUNT(tcache_totals(here, CLASS).frees, ==, before.frees + 100);
  for (unsigned i = 0; i < 100; i++) CHECK(!waits(blocks[i]) && block_is_intact(blocks[i]));
}

/* More blocks than quarantine holds: the oldest leave first, blocks that leave together have no order, and each block
   leaves once. */
static void full(void) {
  take(MOST);
  unsigned still = 0;
  for (unsigned i = 0; i < MOST; i++) {
    release(blocks[i]);
    check_ring();
  }
  for (unsigned i = 0; i < MOST; i++) still += waits(blocks[i]);
  CHECK_COUNT(still, ==, here->quarantine->count);
  CHECK_COUNT(still, >=, min_size(options.quarantine_bytes / size, QUARANTINE_MOST) / 8 * 6);
  for (unsigned i = MOST - still; i < MOST; i++) CHECK(waits(blocks[i]));
  quarantine_empty(here);
  for (unsigned i = 0; i < MOST; i++) CHECK(!waits(blocks[i]));
  take(MOST); /* each block left once; otherwise one would hold no key when it is taken again */
  unsigned in_order = 0;
  for (unsigned i = 1; i < MOST; i++) in_order += (size_t)labs(blocks[i] - blocks[i - 1]) == size;
  CHECK_COUNT(in_order, <, MOST / 4);
  for (unsigned i = 0; i < MOST; i++) release(blocks[i]);
}

/* They go to their slabs when they leave, and a fork child finds them. */
static void of_another_heap(void) {
  uint64_t remote[CLASSES] = {0};
  quarantine_empty(here);
  current_heap = other;
  take(50);
  current_heap = here;
  for (unsigned i = 0; i < 50; i++) release(blocks[i]);
  CHECK_COUNT(quarantine_of(here, CLASS), ==, 0);
  quarantine_count_remote(here, remote);
  CHECK_COUNT(remote[CLASS], ==, 50);
  check_ring();
  quarantine_empty(here);
  CHECK_COUNT(here->store->remote.count, ==, 50);
  heap_flush_remote(here);
}

static char *written;

static void empty(void) { quarantine_empty(here); }

static void expect(const char *says) {
  char heard[256], expected[256];
  snprintf(expected, sizeof expected, says, (void *)written, class_size(CLASS));
  hear(empty, heard, sizeof heard);
  if (!strstr(heard, expected)) dprintf(2, "heard: %s", heard);
  CHECK(strstr(heard, expected) != NULL);
  CHECK_COUNT(quarantine_of(here, CLASS), ==, 0);
  check_ring();
}

/* Writes to the first and the last byte of each part of the block, and to the link: the block serves again. After a
   write to the key it does not. */
static void writes_are_told(void) {
  const size_t places[] = {0, 7, 8, 15, 16, 31, size - 1};
  for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
    char expected[64];
    const bool of_key = places[i] / 8 == 1;
    quarantine_empty(here);
    take(1);
    release(written = blocks[0]);
    const unsigned length = on_list(here);
    written[places[i]] ^= 1;
    snprintf(expected, sizeof expected, "write to freed block %%p (%%zu-byte class, at byte %zu)",
             places[i] < 16 ? places[i] / 8 * 8 : places[i]);
    expect(expected);
    CHECK_COUNT(on_list(here), ==, length + !of_key);
  }
}

/* A write hides the first free of a block, and the block is freed again: it is on the list once at most. */
static void twice(void) {
  take(1);
  release(written = blocks[0]);
  block_mark(written, 1);
  release(written);
  expect("double free of %p (%zu-byte class)");
  unsigned met = 0;
  for (void *b = here->list[CLASS]; b != CHAIN_END; b = block_next(b)) met += b == written;
  CHECK_COUNT(met, ==, 1);
}

static void without_room(void) {
  options.quarantine_bytes = 0;
  take(10);
  for (unsigned i = 0; i < 10; i++) {
    release(blocks[i]);
    CHECK(!waits(blocks[i]));
    check_ring();
  }
}

int main(void) {
  start_floors();
  options.on_misuse = MISUSE_REPORT;
  options.quarantine_bytes = 64 * KiB;
  size = class_size(CLASS);
  CHECK((here = heap_acquire()) && (other = heap_acquire()));
  current_heap = here;
  counts_as_freed();
  full();
  of_another_heap();
  writes_are_told();
  twice();
  without_room();
  return 0;
}
