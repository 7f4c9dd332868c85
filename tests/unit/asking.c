/* tslab_owns, tslab_version, tslab_purge, tslab_mallopt. */
#include "../check.h"

static void owns_what_it_hands_out(void) {
  static int data;
  int local = 0;
  CHECK(!tslab_owns(NULL) && !tslab_owns(&data) && !tslab_owns(&local) && !tslab_owns((void *)(uintptr_t)16));
  CHECK(!tslab_owns((void *)UINTPTR_MAX) && !tslab_owns((void *)(uintptr_t)0x4141414141414141));
  for (size_t size = 0; size < ((size_t)40 << 20); size = size * 2 + 1) {
    char *block = tslab_malloc(size);
    CHECK(block != NULL);
    CHECK(tslab_owns(block) && tslab_owns(block + size / 2) && tslab_owns(block + tslab_malloc_usable_size(block) - 1));
    tslab_free(block);
  }
}

static void purge_says_how_much(void) {
  enum { COUNT = 32, SIZE = 1 << 20 };
  static char *blocks[COUNT];
  tslab_stats_global stats;
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = tslab_malloc(SIZE);
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 1, SIZE);
  }
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  const uint64_t returned = stats.returned_bytes;
  for (int i = 0; i < COUNT; i++) tslab_free(blocks[i]);
  const size_t purged = tslab_purge();
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  /* Some of the memory may have gone back when it was freed; all of it is counted once. */
  CHECK_COUNT(stats.returned_bytes - returned, >=, COUNT * SIZE);
  CHECK_COUNT(stats.returned_bytes - returned, >=, purged);
  CHECK_COUNT(stats.free_dirty_bytes, ==, 0);
  CHECK_COUNT(tslab_purge(), ==, 0);
}

static void version_names_the_library(void) {
  char expected[64];
  snprintf(expected, sizeof expected, "temporal-slab %d.%d.%d (", TSLAB_VERSION_MAJOR, TSLAB_VERSION_MINOR,
           TSLAB_VERSION_PATCH);
  CHECK(strncmp(tslab_version(), expected, strlen(expected)) == 0);
}

/* Some programs end if mallopt refuses a parameter that glibc has. The numbers are glibc's, from M_ARENA_MAX to M_KEEP;
   other C libraries do not define the names. */
static void mallopt_knows_what_glibc_has(void) {
  static const int values[] = {INT_MIN, -1, 0, 1, 160, 64 << 10, 32 << 20, INT_MAX};
  for (int parameter = -20; parameter <= 20; parameter++) {
    const int expected = parameter >= -8 && parameter <= 4 && parameter != 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
      errno = 1234;
      CHECK_COUNT(tslab_mallopt(parameter, values[i]), ==, expected);
      CHECK(errno == 1234);
    }
  }
  CHECK(tslab_mallopt(-9999, 1) == 0 && tslab_mallopt(INT_MIN, 1) == 0 && tslab_mallopt(INT_MAX, 1) == 0);
}

/* An accepted parameter has no effect that a program can see: M_PERTURB fills no block. */
static void mallopt_changes_nothing(void) {
  enum { PERTURB = -6 };
  CHECK(tslab_mallopt(PERTURB, 0xa5) == 1);
  unsigned char *block = tslab_calloc(1, 100000);
  CHECK(block != NULL);
  for (size_t i = 0; i < 100000; i++) CHECK(block[i] == 0);
  tslab_free(block);
}

int main(void) {
  owns_what_it_hands_out();
  purge_says_how_much();
  version_names_the_library();
  mallopt_knows_what_glibc_has();
  mallopt_changes_nothing();
  return 0;
}
