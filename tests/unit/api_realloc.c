/* realloc and reallocarray: content at every change of size, failures that change nothing. */
#include "../check.h"

static void fill(unsigned char *block, size_t size, uint64_t seed) {
  for (size_t i = 0; i < size; i++) block[i] = (unsigned char)(seed + i * 31 + (i >> 12));
}

static void check_fill(const unsigned char *block, size_t size, uint64_t seed) {
  for (size_t i = 0; i < size; i++) CHECK(block[i] == (unsigned char)(seed + i * 31 + (i >> 12)));
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

static void change(size_t from, size_t to) {
  unsigned char *block = tslab_malloc(from);
  CHECK(block != NULL);
  fill(block, from, from);
  unsigned char *moved = tslab_realloc(block, to);
  CHECK(moved != NULL);
  CHECK_COUNT((uintptr_t)moved % 16, ==, 0);
  CHECK_COUNT(tslab_malloc_usable_size(moved), >=, to);
  check_fill(moved, min(from, to), from);
  memset(moved, 0xEE, tslab_malloc_usable_size(moved));
  tslab_free(moved);
}

static void content_is_kept_between_all_sizes(void) {
  const size_t sizes[] = {1,     16,    17,    100,    1000,   1024,   1025,    4096,    10000,  16385,
                          32768, 32769, 65536, 131073, 262144, 262145, 1000000, 3 << 20, 9 << 20};
  const size_t count = sizeof sizes / sizeof *sizes;
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < count; j++)
      if (sizes[i] + sizes[j] <= 13000000 / TEST_SCALE) change(sizes[i], sizes[j]);
  change((size_t)40 << 20, (size_t)70 << 20);
  change((size_t)70 << 20, 50);
}

static void growth_in_small_steps(void) {
  unsigned char *block = NULL;
  size_t size = 0;
  while (size < ((size_t)8 << 20) / TEST_SCALE) {
    const size_t larger = size + 1 + size / 8;
    unsigned char *moved = tslab_realloc(block, larger);
    CHECK(moved != NULL);
    check_fill(moved, size, 7);
    fill(moved, larger, 7);
    block = moved;
    size = larger;
  }
  while (size > 1) {
    size -= 1 + size / 5;
    if (size == 0) size = 1;
    unsigned char *moved = tslab_realloc(block, size);
    CHECK(moved != NULL);
    check_fill(moved, size, 7);
    block = moved;
  }
  tslab_free(block);
}

/* Programs shrink a buffer to its contents, as Redis does with each value, so a block never keeps an eighth too
   much. */
static void a_shrunk_block_gives_back_what_it_need_not_hold(void) {
  for (size_t from = 16; from <= 32768; from += from < 1024 ? 16 : 256)
    for (size_t to = 1; to <= from; to += 1 + to / 16) {
      void *block = tslab_malloc(from), *fresh = tslab_malloc(to);
      CHECK(block != NULL && fresh != NULL);
      size_t least = tslab_malloc_usable_size(fresh);
      block = tslab_realloc(block, to);
      CHECK(block != NULL);
      CHECK_COUNT(tslab_malloc_usable_size(block) * 7, <=, least * 8);
      void *again = tslab_realloc(block, to);
      CHECK(again == block); /* the block of a class does not move to another class */
      tslab_free(again);
      tslab_free(fresh);
    }
}

/* The neighbours are live: a large block cannot always grow in place. */
static void large_blocks_grow_among_neighbours(void) {
  enum { COUNT = 8 };
  unsigned char *blocks[COUNT];
  size_t size = 300000;
  for (size_t i = 0; i < COUNT; i++) {
    blocks[i] = tslab_malloc(size);
    CHECK(blocks[i] != NULL);
    fill(blocks[i], size, i);
  }
  for (int round = 0; round < 3; round++, size *= 2)
    for (size_t i = 0; i < COUNT; i++) {
      blocks[i] = tslab_realloc(blocks[i], size * 2);
      CHECK(blocks[i] != NULL);
      check_fill(blocks[i], size, i);
      fill(blocks[i], size * 2, i);
    }
  for (size_t i = 0; i < COUNT; i++) {
    check_fill(blocks[i], size, i);
    tslab_free(blocks[i]);
  }
}

/* Buffers that grow in turn by an eighth have room to grow into: each moves a few times on its way to 4 MB, and not at
   each step because another buffer lies behind it. In the hardened library a guard stands in place of this room. */
static void buffers_growing_in_turn_move_seldom(void) {
  enum { BUFFERS = 16, MOST = 4000000 };
  unsigned char *buffers[BUFFERS] = {NULL};
  unsigned moves = 0, steps = 0;
  for (size_t size = 100000, old = 0; size < MOST; old = size, size += size / 8, steps++)
    for (size_t i = 0; i < BUFFERS; i++) {
      unsigned char *const grown = tslab_realloc(buffers[i], size);
      CHECK(grown != NULL);
      if (old) CHECK(grown[0] == i && grown[old - 1] == (unsigned char)(i + 1));
      moves += buffers[i] && grown != buffers[i];
      buffers[i] = grown;
      grown[0] = (unsigned char)i, grown[size - 1] = (unsigned char)(i + 1);
    }
  CHECK_COUNT(steps, >, 30);
  if (!TSLAB_HARDENED) CHECK_COUNT(moves, <=, 4 * BUFFERS);
  for (size_t i = 0; i < BUFFERS; i++) tslab_free(buffers[i]);
}

static void null_is_malloc_and_zero_is_free(void) {
  void *block = tslab_realloc(NULL, 100);
  CHECK(block != NULL);
  CHECK_COUNT(tslab_malloc_usable_size(block), >=, 100);
  errno = 1234;
  CHECK(tslab_realloc(block, 0) == NULL);
  CHECK(errno == 1234);
  void *large = tslab_malloc(1 << 20);
  CHECK(large != NULL);
  CHECK(tslab_realloc(large, 0) == NULL);
  void *zero = tslab_realloc(NULL, 0);
  CHECK(zero != NULL);
  tslab_free(zero);
}

static void shrinking_gives_memory_back(void) {
  void *block = tslab_malloc((size_t)64 << 20);
  CHECK(block != NULL);
  block = tslab_realloc(block, 100000);
  CHECK(block != NULL);
  CHECK_COUNT(tslab_malloc_usable_size(block), <, 1 << 20);
  tslab_free(block);
}

static void failure_leaves_the_block(void) {
  const size_t sizes[] = {10, 5000, 100000, 3000000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    unsigned char *block = tslab_malloc(sizes[i]);
    CHECK(block != NULL);
    fill(block, sizes[i], i);
    errno = 0;
    CHECK(tslab_realloc(block, PTRDIFF_MAX) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(tslab_realloc(block, SIZE_MAX) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(tslab_reallocarray(block, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(tslab_reallocarray(block, (size_t)1 << 32, (size_t)1 << 32) == NULL && errno == ENOMEM);
    check_fill(block, sizes[i], i);
    tslab_free(block);
  }
  errno = 0;
  CHECK(tslab_realloc(NULL, SIZE_MAX) == NULL && errno == ENOMEM);
}

static void reallocarray_multiplies(void) {
  unsigned char *block = tslab_reallocarray(NULL, 30, 7);
  CHECK(block != NULL);
  CHECK_COUNT(tslab_malloc_usable_size(block), >=, 210);
  fill(block, 210, 3);
  block = tslab_reallocarray(block, 500, 100);
  CHECK(block != NULL);
  CHECK_COUNT(tslab_malloc_usable_size(block), >=, 50000);
  check_fill(block, 210, 3);
  CHECK(tslab_reallocarray(block, 0, 100) == NULL);
}

static void aligned_blocks_may_be_resized(void) {
  for (size_t alignment = 32; alignment <= ((size_t)2 << 20); alignment *= 4) {
    unsigned char *block = tslab_memalign(alignment, 1000);
    CHECK(block != NULL);
    fill(block, 1000, alignment);
    block = tslab_realloc(block, 3000);
    CHECK(block != NULL);
    check_fill(block, 1000, alignment);
    fill(block, 3000, alignment);
    block = tslab_realloc(block, 100);
    CHECK(block != NULL);
    check_fill(block, 100, alignment);
    tslab_free(block);
  }
}

static void errno_is_kept(void) {
  errno = 1234;
  void *block = NULL;
  for (size_t size = 1; size < 10000000; size *= 3) block = tslab_realloc(block, size);
  CHECK(block != NULL && errno == 1234);
  tslab_free(block);
}

int main(void) {
  content_is_kept_between_all_sizes();
  growth_in_small_steps();
  a_shrunk_block_gives_back_what_it_need_not_hold();
  large_blocks_grow_among_neighbours();
  buffers_growing_in_turn_move_seldom();
  null_is_malloc_and_zero_is_free();
  shrinking_gives_memory_back();
  failure_leaves_the_block();
  reallocarray_multiplies();
  aligned_blocks_may_be_resized();
  errno_is_kept();
  return 0;
}
