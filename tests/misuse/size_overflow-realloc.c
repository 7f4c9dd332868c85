#include "misuse.h"

static void run(void) {
  char *block = culprit_of(SMALL);
  errno = 0;
  CHECK(tslab_realloc(block, SIZE_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_reallocarray(block, SIZE_MAX / 2 + 2, 2) == NULL && errno == ENOMEM);
  CHECK(block[SMALL - 1] == 0x22);
  tslab_free(block);
}

MISUSE("realloc and reallocarray of too much: ENOMEM, and the block is as it was", RETURNED, NULL);
