/* malloc and free: sizes from 0 to beyond PTRDIFF_MAX, alignment, usable size, errno. */
#include "../check.h"

static void write_all(void *block) { memset(block, 0x5A, tslab_malloc_usable_size(block)); }

static void every_size_is_aligned_and_writable(void) {
  enum { HELD = 16 };
  void *held[HELD] = {0};
  size_t step = 1, count = 0;
  for (size_t size = 0; size <= ((size_t)20 << 20); size += step) {
    if (size >= 4200) step = size / 7;
    void *block = tslab_malloc(size);
    CHECK(block != NULL);
    CHECK_COUNT((uintptr_t)block % 16, ==, 0);
    CHECK_COUNT(tslab_malloc_usable_size(block), >=, size);
    write_all(block);
    /* A few stay alive, so that a usable size that reaches into a neighbour shows in what follows. */
    tslab_free(held[count % HELD]);
    held[count++ % HELD] = block;
  }
  for (size_t i = 0; i < HELD; i++) tslab_free(held[i]);
}

static void size_zero_gives_distinct_blocks(void) {
  void *a = tslab_malloc(0), *b = tslab_malloc(0);
  CHECK(a != NULL && b != NULL && a != b);
  write_all(a);
  write_all(b);
  tslab_free(a);
  tslab_free(b);
}

static void impossible_sizes_fail_with_enomem(void) {
  const size_t sizes[] = {PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX - 4096, SIZE_MAX - 15, SIZE_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    errno = 0;
    CHECK(tslab_malloc(sizes[i]) == NULL);
    CHECK(errno == ENOMEM);
  }
}

static void errno_is_kept(void) {
  const size_t sizes[] = {1, 100, 5000, 40000, 300000, (size_t)40 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    errno = 1234;
    void *block = tslab_malloc(sizes[i]);
    CHECK(block != NULL && errno == 1234);
    tslab_free(block);
    CHECK(errno == 1234);
  }
  tslab_free(NULL);
  CHECK(errno == 1234);
  CHECK(tslab_malloc_usable_size(NULL) == 0 && errno == 1234);
}

static int by_address(const void *a, const void *b) {
  const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
  return (x > y) - (x < y);
}

static void blocks_do_not_overlap(void) {
  enum { COUNT = 20000 };
  static uintptr_t blocks[COUNT];
  uint64_t random = 1;
  for (size_t i = 0; i < COUNT; i++) {
    void *block = tslab_malloc(check_random(&random) % 2000);
    CHECK(block != NULL);
    blocks[i] = (uintptr_t)block;
  }
  qsort(blocks, COUNT, sizeof *blocks, by_address);
  for (size_t i = 1; i < COUNT; i++)
    CHECK_COUNT(blocks[i - 1] + tslab_malloc_usable_size((void *)blocks[i - 1]), <=, blocks[i]);
  for (size_t i = 0; i < COUNT; i++) tslab_free((void *)blocks[i]);
}

int main(void) {
  every_size_is_aligned_and_writable();
  size_zero_gives_distinct_blocks();
  impossible_sizes_fail_with_enomem();
  errno_is_kept();
  blocks_do_not_overlap();
  return 0;
}
