/* Blocks of an epoch behave like all others: sizes, alignments, contents, zeros, realloc, reuse. */
#include "../epochs.h"

enum { MOST = 1 << 20 };

static void fill(unsigned char *block, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) block[i] = (unsigned char)(seed + i * 7);
}

static void check_filled(const unsigned char *block, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) CHECK(block[i] == (unsigned char)(seed + i * 7));
}

static void every_size(tslab_epoch e) {
  enum { KEPT = 8 };
  unsigned char *kept[KEPT] = {0};
  size_t sizes[KEPT] = {0};
  unsigned n = 0;
  for (size_t size = 0; size <= MOST; size += size < 2100 ? 1 : size * TEST_SCALE / 40, n++) {
    const unsigned at = n % KEPT; /* so that neighbours are live while the test writes a block to its end */
    check_filled(kept[at], sizes[at], n - KEPT);
    tslab_free(kept[at]);
    kept[at] = tslab_epoch_malloc(e, size);
    CHECK(kept[at] != NULL);
    CHECK_COUNT((uintptr_t)kept[at] % 16, ==, 0);
    CHECK_COUNT(tslab_epoch_of(kept[at]), ==, e);
    sizes[at] = tslab_malloc_usable_size(kept[at]);
    CHECK_COUNT(sizes[at], >=, size);
    fill(kept[at], sizes[at], n);
  }
  for (unsigned at = 0; at < KEPT; at++) tslab_free(kept[at]);
  CHECK_COUNT(status_of(e).live_blocks, ==, 0);
}

static void every_alignment(tslab_epoch e) {
  const size_t sizes[] = {0, 1, 16, 100, 777, 4096, 5000, 40000, 200001};
  for (size_t alignment = 1; alignment <= ((size_t)4 << 20); alignment *= 2)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      void *blocks[2];
      for (int j = 0; j < 2; j++) {
        blocks[j] = tslab_epoch_aligned_alloc(e, alignment, sizes[i]);
        CHECK(blocks[j] != NULL);
        CHECK_COUNT((uintptr_t)blocks[j] % alignment, ==, 0);
        CHECK_COUNT((uintptr_t)blocks[j] % 16, ==, 0);
        CHECK_COUNT(tslab_epoch_of(blocks[j]), ==, e);
        CHECK_COUNT(tslab_malloc_usable_size(blocks[j]), >=, sizes[i]);
        memset(blocks[j], 0x44, tslab_malloc_usable_size(blocks[j]));
      }
      tslab_free(blocks[0]);
      tslab_free(blocks[1]);
    }
  const size_t bad[] = {0, 3, 24, 100, SIZE_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    errno = 0;
    CHECK(tslab_epoch_aligned_alloc(e, bad[i], 10) == NULL);
    CHECK_COUNT(errno, ==, EINVAL);
  }
}

static void check_zero_then_spoil(void *block, size_t size) {
  CHECK(block != NULL);
  for (size_t i = 0; i < size; i++) CHECK(((unsigned char *)block)[i] == 0);
  memset(block, 0xEE, tslab_malloc_usable_size(block));
}

/* In fresh memory, in memory that the epoch freed itself, and in memory that an earlier epoch left. */
static void calloc_is_zero(void) {
  static void *blocks[400];
  const size_t sizes[] = {1, 40, 1000, 5000, 40000, 300000};
  for (int round = 0; round < 6; round++) {
    const tslab_epoch e = open_epoch("zeros", TSLAB_EPOCH_DESTROYABLE);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int again = 0; again < 3; again++) {
        const int count = sizes[i] > 5000 ? 8 : 400;
        for (int j = 0; j < count; j++)
          check_zero_then_spoil(blocks[j] = tslab_epoch_calloc(e, 1 + j % 2, sizes[i]), sizes[i] * (size_t)(1 + j % 2));
        for (int j = 0; j < count; j++) tslab_free(blocks[j]);
      }
    for (int j = 0; j < 50; j++) check_zero_then_spoil(tslab_epoch_calloc(e, 7, 100), 700);
    CHECK_COUNT(tslab_epoch_reset(e, NULL), ==, 0);
    for (int j = 0; j < 50; j++) check_zero_then_spoil(tslab_epoch_calloc(e, 7, 100), 700);
    CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
  }
}

static void more_than_there_is(tslab_epoch e) {
  const size_t half = SIZE_MAX / 2 + 1;
  errno = 0;
  CHECK(tslab_epoch_malloc(e, SIZE_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_epoch_malloc(e, PTRDIFF_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_epoch_calloc(e, half, 2) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_epoch_calloc(e, SIZE_MAX, SIZE_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_epoch_aligned_alloc(e, 4096, SIZE_MAX - 100) == NULL && errno == ENOMEM);
  tslab_free(block_in(e, 10));
}

/* Up and down through every kind of block, while another epoch is current. */
static void realloc_keeps_the_epoch(tslab_epoch e, tslab_epoch current) {
  const size_t sizes[] = {1, 20, 100, 90, 5000, 100000, 3 << 20, 70000, 400, 60000, 17};
  CHECK_COUNT(tslab_epoch_enter(current), ==, 0);
  for (int start = 0; start < 50 / TEST_SCALE + 5; start++) {
    unsigned char *block = tslab_epoch_malloc(e, 10);
    size_t had = 10;
    fill(block, had, 0);
    for (size_t i = (size_t)start % 5; i < sizeof sizes / sizeof *sizes; i++) {
      block = tslab_realloc(block, sizes[i]);
      CHECK(block != NULL);
      CHECK_COUNT(tslab_epoch_of(block), ==, e);
      CHECK_COUNT(tslab_malloc_usable_size(block), >=, sizes[i]);
      check_filled(block, had < sizes[i] ? had : sizes[i], i == (size_t)start % 5 ? 0 : (unsigned)i - 1);
      had = sizes[i];
      fill(block, had, (unsigned)i);
    }
    CHECK(tslab_realloc(block, 0) == NULL);
    block = tslab_realloc(NULL, 10); /* no block, no epoch to keep */
    CHECK_COUNT(tslab_epoch_of(block), ==, current);
    tslab_free(block);
  }
  CHECK_COUNT(tslab_epoch_leave(current), ==, 0);
  CHECK_COUNT(status_of(e).live_blocks, ==, 0);
}

/* Allocates and frees `live` blocks at most at a time, without end; the peak bounds the memory that the epoch holds. */
static void churn(tslab_epoch e, size_t smallest, size_t largest, unsigned live, size_t bound) {
  static void *blocks[64];
  uint64_t random = 9;
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  for (unsigned i = 0; i < 600000 / TEST_SCALE; i++) {
    void **const slot = &blocks[i % live];
    tslab_free(*slot);
    const size_t size = smallest + check_random(&random) % (largest - smallest + 1);
    *slot = block_here(size);
    if (i % 100000 == 99999 / TEST_SCALE) CHECK_COUNT(status_of(e).committed_bytes, <=, bound);
  }
  for (unsigned i = 0; i < live; i++) {
    tslab_free(blocks[i]);
    blocks[i] = NULL;
  }
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(status_of(e).committed_bytes, <=, bound);
  CHECK_COUNT(status_of(e).live_blocks, ==, 0);
}

static void reuse_is_bounded(void) {
  tslab_epoch e = open_epoch("one size", 0);
  churn(e, 100, 100, 1, 4 * GRANULE); /* two chunks and a slab would be enough */
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  e = open_epoch("one size, some live", 0);
  churn(e, 100, 100, 64, 4 * GRANULE);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  e = open_epoch("all sizes", 0);
  tslab_class_stats class = {0};
  unsigned classes = 0;
  while (class.object_size < 1024) CHECK_COUNT(tslab_stats_class(classes++, &class, sizeof class), ==, 0);
  churn(e, 1, 1024, 64, (classes + 4) * GRANULE); /* a slab of each class */
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  e = open_epoch("large", 0);
  churn(e, 40000, 100000, 8, 8 * 2 * GRANULE + 4 * GRANULE);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  check_stale(e);
}

int main(void) {
  const tslab_epoch e = open_epoch("blocks", 0), other = open_epoch("other", 0);
  every_size(e);
  every_size(e); /* once more, in used memory, which the epoch turns to slabs */
  every_alignment(e);
  calloc_is_zero();
  more_than_there_is(e);
  realloc_keeps_the_epoch(e, 0);
  realloc_keeps_the_epoch(e, other);
  realloc_keeps_the_epoch(e, e);
  CHECK_COUNT(tslab_epoch_close(other, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  check_stale(e);
  reuse_is_bounded();
  return 0;
}
