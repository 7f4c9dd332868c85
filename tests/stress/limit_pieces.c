/* limit_pieces: half of a heap at its limit is free, in pieces that are shorter than a slab. They serve smaller
 * blocks. And a request that fits none of many pieces leaves the process most of its mappings. */
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

enum { HOLES = TSLAB_HARDENED ? 10000 : 20000, MAPPINGS = 5000, WITHIN = 40000 }; /* hardened, with a guard each */

static size_t mappings(void) {
  static char text[1 << 16];
  size_t lines = 0;
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0);
  for (ssize_t length; (length = read(file, text, sizeof text)) > 0;)
    for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
  CHECK(close(file) == 0);
  return lines;
}

/* The blocks are not written to, so their pages cost nothing. */
static int holes(int resource) {
  static void *blocks[2 * HOLES];
  const struct rlimit limit = {4096 * MIB, 4096 * MIB};
  CHECK(setrlimit(resource, &limit) == 0);
  for (int i = 0; i < 2 * HOLES; i++) CHECK((blocks[i] = malloc(WITHIN)) != NULL);
  for (int i = 0; i < 2 * HOLES; i += 2) free(blocks[i]);
  CHECK(malloc(3800 * MIB) == NULL);
  CHECK_COUNT(mappings(), <=, MAPPINGS);
  for (int i = 0; i < 2 * HOLES; i += 2) CHECK((blocks[i] = malloc(WITHIN)) != NULL);
  for (int i = 0; i < 2 * HOLES; i++) free(blocks[i]);
  return 0;
}

int main(void) {
  const int result = under_each_limit(under);
  return result ? result : under_each_limit(holes);
}
