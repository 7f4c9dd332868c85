#include "misuse.h"

static void run(void) {
  char *block = culprit_of(LARGE);
  errno = 0;
  CHECK(tslab_realloc(block, SIZE_MAX - 4096) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_realloc(block, PTRDIFF_MAX) == NULL && errno == ENOMEM);
  CHECK(block[LARGE - 1] == 0x22);
  tslab_free(block);
}

MISUSE("realloc of a large block to too much: ENOMEM, and it is as it was", RETURNED, NULL);
