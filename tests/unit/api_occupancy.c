/* tslab_occupancy describes the slab, chunk or run of a block, takes any pointer, and runs beside other threads. */
#include "../epochs.h"

#include <stdatomic.h>

static tslab_slab_use use_of(const void *p) {
  void *blocks[] = {(void *)(uintptr_t)p};
  tslab_slab_use use;
  memset(&use, 0xEE, sizeof use);
  CHECK_COUNT(tslab_occupancy(blocks, 1, &use), ==, 0);
  for (size_t i = 0; i < sizeof use.reserved / sizeof *use.reserved; i++) CHECK_COUNT(use.reserved[i], ==, 0);
  CHECK_COUNT(use.used_bytes, <=, use.capacity_bytes);
  CHECK_COUNT(use.capacity_bytes, <=, use.slab_bytes);
  return use;
}

static void no_block_no_figures(void) {
  static int data;
  int local = 0;
  const void *const none[] = {NULL, &data, &local, (void *)16, (void *)UINTPTR_MAX, (void *)0x4141414141414141};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    const tslab_slab_use use = use_of(none[i]);
    CHECK(use.kind == TSLAB_USE_NONE && use.start == 0 && use.slab_bytes == 0 && use.used_blocks == 0);
  }
  tslab_slab_use use;
  void *block = &local;
  CHECK_COUNT(tslab_occupancy(NULL, 1, &use), ==, EINVAL);
  CHECK_COUNT(tslab_occupancy(&block, 1, NULL), ==, EINVAL);
  CHECK_COUNT(tslab_occupancy(&block, 0, &use), ==, 0);
}

/* Allocates an epoch's blocks one after the other, and frees three quarters of them. */
static void a_chunk(void) {
  enum { COUNT = 400, SIZE = 96 };
  static void *blocks[COUNT];
  static tslab_slab_use uses[COUNT];
  const tslab_epoch e = open_epoch("chunk", 0);
  for (int i = 0; i < COUNT; i++) blocks[i] = block_in(e, SIZE);
  tslab_slab_use use = use_of(blocks[0]);
  CHECK_COUNT(use.kind, ==, TSLAB_USE_CHUNK);
  CHECK_COUNT(use.epoch, ==, e);
  CHECK_COUNT(use.used_blocks, ==, COUNT);
  CHECK_COUNT(use.used_bytes, ==, COUNT * SIZE);
  CHECK_COUNT(use.slab_bytes, ==, GRANULE);
  CHECK_COUNT(use.is_current, ==, 1);
  CHECK((uintptr_t)blocks[0] - use.start < use.slab_bytes);
  for (int i = 0; i < COUNT; i++)
    if (i % 4 != 0) tslab_free(blocks[i]);
  CHECK_COUNT(tslab_occupancy(blocks, COUNT, uses), ==, 0); /* freed blocks have their slab's figures */
  for (int i = 0; i < COUNT; i++) {
    CHECK_COUNT(uses[i].start, ==, use.start);
    CHECK_COUNT(uses[i].used_bytes, ==, COUNT / 4 * SIZE);
  }
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  use = use_of(blocks[0]);
  CHECK_COUNT(use.used_blocks, ==, COUNT / 4);
  CHECK_COUNT(use.is_current, ==, 0);
  for (int i = 0; i < COUNT; i += 4) tslab_free(blocks[i]);
}

/* Slabs of an epoch that closed: no list holds any of their blocks, so the figures are exact. */
static void a_slab(void) {
  enum { COUNT = 64, SIZE = 20000 };
  static void *blocks[COUNT];
  const tslab_epoch e = open_epoch("slabs", 0);
  for (int i = 0; i < COUNT; i++) blocks[i] = block_in(e, SIZE);
  const size_t usable = tslab_malloc_usable_size(blocks[0]);
  const tslab_slab_use full = use_of(blocks[0]);
  CHECK_COUNT(full.kind, ==, TSLAB_USE_SLAB);
  CHECK_COUNT(full.epoch, ==, e);
  CHECK_COUNT(full.capacity_bytes % usable, ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  uint64_t left = use_of(blocks[0]).used_blocks;
  CHECK_COUNT(left, ==, full.capacity_bytes / usable);
  for (int i = COUNT - 1; i > 0; i--) {
    const bool beside = use_of(blocks[i]).start == full.start;
    tslab_free(blocks[i]);
    if (beside) CHECK_COUNT(use_of(blocks[0]).used_blocks, ==, --left);
  }
  CHECK_COUNT(left, ==, 1);
  CHECK_COUNT(use_of(blocks[0]).used_bytes, ==, usable);
  tslab_free(blocks[0]);
}

static void a_large_block(void) {
  char *const block = tslab_malloc(300000);
  const tslab_slab_use use = use_of(block + 200000); /* anywhere in it */
  CHECK_COUNT(use.kind, ==, TSLAB_USE_LARGE);
  CHECK_COUNT(use.start, ==, (uintptr_t)block);
  CHECK_COUNT(use.used_bytes, ==, tslab_malloc_usable_size(block));
  CHECK_COUNT(use.used_blocks, ==, 1);
  CHECK_COUNT(use.epoch, ==, 0);
  tslab_free(block);
}

enum { SHARED = 512 };
static void *_Atomic shared[SHARED];
static atomic_bool stop;

static void *ask(void *arg) {
  static _Thread_local void *seen[SHARED];
  static _Thread_local tslab_slab_use uses[SHARED];
  while (!atomic_load(&stop)) {
    for (int i = 0; i < SHARED; i++) seen[i] = atomic_load_explicit(&shared[i], memory_order_relaxed);
    CHECK_COUNT(tslab_occupancy(seen, SHARED, uses), ==, 0);
  }
  return arg;
}

/* Pointers whose blocks, slabs, chunks and epochs end while tslab_occupancy looks at them. */
static void beside_all_that_ends(void) {
  pthread_t thread;
  uint64_t random = 5;
  CHECK(pthread_create(&thread, NULL, ask, NULL) == 0);
  for (int round = 0; round < 600 / TEST_SCALE; round++) {
    const tslab_epoch e = open_epoch("short", TSLAB_EPOCH_DESTROYABLE);
    for (int i = 0; i < SHARED; i++) {
      const size_t most = round % 3 == 0 ? 200 : round % 3 == 1 ? 9000 : 70000;
      void *const block = tslab_epoch_malloc(e, check_random(&random) % most);
      CHECK(block != NULL);
      atomic_store_explicit(&shared[i], block, memory_order_relaxed);
      if (i % 3 == 0) tslab_free(block);
    }
    CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
  }
  atomic_store(&stop, true);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
  no_block_no_figures();
  a_chunk();
  a_slab();
  a_large_block();
  if (!SANITIZED) beside_all_that_ends(); /* it reads words that other threads write */
  return 0;
}
