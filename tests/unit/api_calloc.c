/* calloc: memory is zero after any earlier use; a product that overflows is refused. */
#include "../check.h"

static void check_zero(const unsigned char *block, size_t size) {
  if (size == 0) return;
  CHECK_COUNT(block[0], ==, 0);
  CHECK(memcmp(block, block + 1, size - 1) == 0);
}

/* Frees dirty blocks of the size in a number that passes through every path of reuse: the thread's own list, its
   overflow, an emptied slab, a run of granules that went back. */
static void dirty_then_check(size_t size, size_t blocks) {
  static void *held[64];
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < blocks; i++) {
      held[i] = tslab_malloc(size);
      CHECK(held[i] != NULL);
      memset(held[i], 0xAA, tslab_malloc_usable_size(held[i]));
    }
    for (size_t i = 0; i < blocks; i++) tslab_free(held[i]);
    if (round == 2) tslab_malloc_trim(0);
    for (size_t i = 0; i < blocks; i++) {
      held[i] = tslab_calloc(1, size);
      CHECK(held[i] != NULL);
      CHECK_COUNT(tslab_malloc_usable_size(held[i]), >=, size);
      check_zero(held[i], size);
      memset(held[i], 0xBB, tslab_malloc_usable_size(held[i]));
    }
    for (size_t i = 0; i < blocks; i++) tslab_free(held[i]);
  }
}

static void zero_after_dirty_reuse(void) {
  for (size_t size = 0; size <= 2100; size += size < 200 ? 1 : 13) dirty_then_check(size, 24);
  for (size_t size = 2100; size < 300000; size += size / 5) dirty_then_check(size, 8);
  for (size_t size = 300000; size < ((size_t)24 << 20); size += size) dirty_then_check(size, 2);
}

static void zero_after_mass_reuse(void) {
  enum { COUNT = 30000 };
  static void *held[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    held[i] = tslab_malloc(i % 700);
    CHECK(held[i] != NULL);
    memset(held[i], 0xCC, i % 700);
  }
  for (size_t i = 0; i < COUNT; i++) tslab_free(held[i]);
  for (size_t i = 0; i < COUNT; i++) {
    held[i] = tslab_calloc(i % 700, 1);
    CHECK(held[i] != NULL);
    check_zero(held[i], i % 700);
  }
  for (size_t i = 0; i < COUNT; i++) tslab_free(held[i]);
}

static void overflow_fails_with_enomem(void) {
  const size_t half = (size_t)1 << 32; /* of the bits */
  const size_t pairs[][2] = {{SIZE_MAX, 2},        {2, SIZE_MAX},   {SIZE_MAX / 2 + 1, 2},
                             {half, half},         {1, SIZE_MAX},   {SIZE_MAX / 16 + 1, 16},
                             {SIZE_MAX, SIZE_MAX}, {PTRDIFF_MAX, 1}, {2 * half + 1, half / 2 + 1}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    errno = 0;
    CHECK(tslab_calloc(pairs[i][0], pairs[i][1]) == NULL);
    CHECK(errno == ENOMEM);
  }
}

static void nothing_of_something_is_a_block(void) {
  void *blocks[] = {tslab_calloc(0, 0), tslab_calloc(0, SIZE_MAX), tslab_calloc(SIZE_MAX, 0)};
  for (int i = 0; i < 3; i++) CHECK(blocks[i] != NULL);
  CHECK(blocks[0] != blocks[1] && blocks[1] != blocks[2] && blocks[0] != blocks[2]);
  for (int i = 0; i < 3; i++) tslab_free(blocks[i]);
}

static void errno_is_kept(void) {
  errno = 1234;
  void *small = tslab_calloc(10, 10), *large = tslab_calloc(1000, 5000);
  CHECK(small != NULL && large != NULL && errno == 1234);
  tslab_free(small);
  tslab_free(large);
}

int main(void) {
  zero_after_dirty_reuse();
  zero_after_mass_reuse();
  overflow_fails_with_enomem();
  nothing_of_something_is_a_block();
  errno_is_kept();
  return 0;
}
