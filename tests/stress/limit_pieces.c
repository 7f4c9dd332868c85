/* limit_pieces: half of a heap at its limit is free, in pieces that are shorter than a slab. They serve smaller
 * blocks. */
#include "each_limit.h"

enum { SIZES = 3, MOST = 4000 };
#define MIB  ((size_t)1 << 20)
#define LIMIT (110 * MIB)
#define PIECE ((size_t)100000)

static const size_t sizes[SIZES] = {6000, 9000, 20000};

static int under(int resource) {
  static void *pieces[MOST];
  const struct rlimit limit = {LIMIT, LIMIT};
  CHECK(setrlimit(resource, &limit) == 0);
  for (int i = 0; i < SIZES; i++) {
    size_t count = 0;
    void *list = NULL;
    while (count < MOST && (pieces[count] = malloc(PIECE)) != NULL) count++;
    for (size_t k = 0; k < count; k += 2) free(pieces[k]);
    CHECK_COUNT(fill_list(&list, sizes[i], SIZE_MAX), >=, count / 2 * PIECE / 10 * 8);
    free_list(&list);
    for (size_t k = 1; k < count; k += 2) free(pieces[k]);
  }
  return 0;
}

int main(void) { return under_each_limit(under); }
