#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  CHECK(tslab_realloc(block, SMALL - 1) == NULL);
}

MISUSE("realloc of a freed block to a size that it has", NAMED, FREED("realloc", SMALL_TEXT));
