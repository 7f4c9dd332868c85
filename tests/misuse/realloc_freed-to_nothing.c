#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  CHECK(tslab_realloc(block, 0) == NULL);
}

MISUSE("realloc of a freed block to 0 bytes", NAMED, FREED("realloc", SMALL_TEXT));
