#include "misuse.h"

static void run(void) {
  char *block = culprit_of(LARGE), *next = tslab_malloc(LARGE), *moved = tslab_realloc(block, 2 * LARGE);
  CHECK(moved != NULL && moved != block && moved[LARGE - 1] == 0x22);
  tslab_free(block);
  tslab_free(moved);
  tslab_free(next);
}

MISUSE("a large block freed that realloc has moved", NAMED, TWICE(LARGE_TEXT));
