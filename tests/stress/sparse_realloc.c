/* sparse_realloc: large blocks of which the program wrote little grow and shrink by realloc, in epoch 0 and in an
 * epoch, and what it did not write does not become resident, also where free memory was written before. */
#include "memory.h"

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 600, MARKS = 5 };

static unsigned char *blocks[BLOCKS];

static unsigned char *mark(int block, size_t size, int which) { return blocks[block] + size / MARKS * (size_t)which; }

static void write_marks(int block, size_t size) {
  for (int k = 0; k < MARKS; k++) *mark(block, size, k) = (unsigned char)(block + k + 1);
}

static void check_marks(int block, size_t marked_size, size_t size) {
  for (int k = 0; k < MARKS; k++)
    if ((size_t)(mark(block, marked_size, k) - blocks[block]) < size)
      CHECK_COUNT(*mark(block, marked_size, k), ==, (unsigned char)(block + k + 1));
}

static void resize(int block, size_t size) {
  unsigned char *const moved = tslab_realloc(blocks[block], size);
  CHECK(moved != NULL);
  blocks[block] = moved;
}

static void grow_all(size_t size) {
  const size_t before = resident_bytes();
  for (int i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = tslab_malloc(size)) != NULL);
    write_marks(i, size);
  }
  for (int i = 0; i < BLOCKS; i++) {
    resize(i, size * 2 + 1);
    check_marks(i, size, size);
  }
  for (int i = 0; i < BLOCKS; i++) {
    resize(i, size * 2 / 3);
    check_marks(i, size, size * 2 / 3);
  }
  /* Each block has a page for each mark, twice at most; its tables take a few. */
  CHECK_COUNT(resident_bytes() - before, <, BLOCKS * size / 8);
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
}

/* Leaves free memory that is resident. The blocks that come there next keep what they take of it, and no more. */
static void dirty(size_t bytes) {
  static void *held[64];
  for (int i = 0; i < 64; i++) {
    CHECK((held[i] = tslab_malloc(bytes / 64)) != NULL);
    memset(held[i], 0xff, bytes / 64);
  }
  for (int i = 0; i < 64; i++) tslab_free(held[i]);
}

/* A copy over old contents is whole, zeros included. */
static void zeros_replace_old_contents(size_t size) {
  dirty(64 * MIB);
  for (int i = 0; i < 20; i++) {
    CHECK((blocks[i] = tslab_calloc(1, size)) != NULL);
    write_marks(i, size);
  }
  for (int i = 0; i < 20; i++) {
    resize(i, size + size / 4);
    check_marks(i, size, size);
    size_t others = 0;
    for (size_t at = 0; at < size; at++) others += blocks[i][at] != 0;
    CHECK_COUNT(others, ==, MARKS);
  }
  for (int i = 0; i < 20; i++) tslab_free(blocks[i]);
}

int main(void) {
  static const size_t sizes[] = {300000, MIB, 3 * MIB, 9 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    grow_all(sizes[i]);
    zeros_replace_old_contents(sizes[i] - 100);
    tslab_purge();
  }
  const tslab_epoch epoch = tslab_epoch_open("sparse");
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  grow_all(MIB);
  zeros_replace_old_contents(MIB - 100);
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
  return 0;
}
