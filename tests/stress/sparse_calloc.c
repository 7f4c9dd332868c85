/* sparse_calloc: a large block of calloc reads as zero, and becomes resident only where the program writes, whether its
 * addresses are new, or free memory lies among them that was written, or that blocks held which were never written. */
#include "memory.h"

#define MIB ((size_t)1 << 20)

enum { TABLE_MIB = 1024, STEP = 16 * 1024, CHURN = 2000 };

static const size_t size = TABLE_MIB * MIB;

/* Returns how many bytes became resident while `fill` ran. */
static size_t grows_by(void (*fill)(void)) {
  const size_t before = resident_bytes();
  fill();
  const size_t after = resident_bytes();
  return after > before ? after - before : 0;
}

static unsigned char *table;

static void take_table(void) {
  CHECK((table = tslab_calloc(1, size)) != NULL);
  for (size_t i = 0; i < 50; i++) table[i * (size / 50)] = 1;
}

static void churn(void) {
  static void *blocks[CHURN];
  for (int i = 0; i < CHURN; i++) {
    CHECK((blocks[i] = tslab_malloc(40000)) != NULL);
    memset(blocks[i], 1, 40000);
  }
  for (int i = 0; i < CHURN; i++) tslab_free(blocks[i]);
}

/* calloc after blocks of a whole table's bytes were written. */
static void reads_as_zero(void) {
  for (size_t bytes = 2 * MIB; bytes <= 128 * MIB; bytes *= 4) {
    unsigned char *block = tslab_malloc(bytes);
    CHECK(block != NULL);
    tslab_free(memset(block, 1, bytes));
    CHECK((block = tslab_calloc(1, bytes)) != NULL);
    for (size_t i = 0; i < bytes; i++) CHECK(block[i] == 0);
    tslab_free(block);
  }
}

int main(void) {
  tslab_purge();
  CHECK_COUNT(grows_by(take_table), <, 8 * MIB);
  tslab_free(table); /* its pages are free now, and most were never written */
  CHECK_COUNT(grows_by(take_table), <, 8 * MIB);
  tslab_free(table);
  churn();
  CHECK_COUNT(grows_by(take_table), <, 100 * MIB);
  for (size_t at = STEP / 2; at < size; at += STEP) CHECK(table[at] == 0);
  CHECK((table = tslab_realloc(table, size / 2)) != NULL);
  CHECK((table = tslab_realloc(table, size)) != NULL);
  tslab_free(table);
  CHECK_COUNT(grows_by(take_table), <, 100 * MIB);
  tslab_free(table);
  reads_as_zero();
  return 0;
}
