/* classes: the class of a size and alignment is the smallest that serves both; the multiplication that tests for a
 * block's start agrees with the division. */
#include "unit.h"

static unsigned smallest(size_t size, size_t alignment) {
  for (unsigned class = 0; class < CLASSES; class++)
    if (class_size(class) >= size && class_size(class) % alignment == 0) return class;
  return CLASSES;
}

static void sizes_and_alignments(void) {
  for (size_t size = 0; size <= SMALL_MAX; size++) CHECK_COUNT(class_of(size), ==, smallest(size, 1));
  for (size_t alignment = 1; alignment <= 4 * SMALL_MAX; alignment *= 2)
    for (size_t size = 0; size <= SMALL_MAX + 1; size++)
      CHECK_COUNT(class_of_aligned(size, alignment), ==, smallest(size, alignment));
  CHECK_COUNT(class_of_aligned(SIZE_MAX, 16), ==, CLASSES);
}

/* The comment in classes.h bounds the waste that a class's neighbour leaves. */
static void steps(void) {
  CHECK_COUNT(class_size(0), ==, 16);
  CHECK_COUNT(class_size(CLASSES - 1), ==, SMALL_MAX);
  for (unsigned class = 1; class < CLASSES; class++) {
    const size_t below = class_size(class - 1), step = class_size(class) - below;
    CHECK_COUNT(class_size(class) % 16, ==, 0);
    CHECK_COUNT(step, >, 0);
    CHECK_COUNT(step, <=, below < 256 ? 16 : below < 1024 ? below / 8 : below / 4);
  }
}

static void agree(unsigned class, uintptr_t p) {
  CHECK_COUNT(class_starts_block(p, class_inverse(class)), ==, p % class_size(class) == 0);
}

static void multiplication(void) {
  const uintptr_t end = (uintptr_t)1 << 47;
  uint64_t random = 1;
  for (unsigned class = 0; class < CLASSES; class++) {
    const size_t size = class_size(class), last = (end - 2) / size * size;
    for (int i = 0; i < 50000; i++) {
      const uintptr_t p = check_random(&random) % end, start = p / size * size;
      agree(class, p);
      agree(class, start);
      agree(class, start + 1);
      agree(class, start + 16); /* most wrong pointers lie there */
      agree(class, start + size - 1);
    }
    agree(class, end - 1);
    agree(class, last);
    agree(class, last + 1);
    agree(class, 0);
  }
}

int main(void) {
  start_floors();
  sizes_and_alignments();
  steps();
  multiplication();
  return 0;
}
