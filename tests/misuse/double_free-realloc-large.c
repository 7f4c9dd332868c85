/* Allocates so many other blocks that the memory behind the block is in use. */
#include "misuse.h"

enum { OTHERS = 8 };

static void run(void) {
  void *others[OTHERS];
  char *block = culprit_of(LARGE);
  for (int i = 0; i < OTHERS; i++) CHECK((others[i] = tslab_malloc(LARGE)) != NULL);
  char *moved = tslab_realloc(block, 2 * LARGE);
  CHECK(moved != NULL && moved != block && moved[LARGE - 1] == 0x22);
  tslab_free(block);
  tslab_free(moved);
  for (int i = 0; i < OTHERS; i++) tslab_free(others[i]);
}

MISUSE("a large block freed that realloc has moved", NAMED, TWICE(LARGE_TEXT));
