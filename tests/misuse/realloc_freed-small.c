#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  CHECK(tslab_realloc(block, 5000) == NULL);
}

MISUSE("realloc of a freed small block", NAMED, FREED("realloc", SMALL_TEXT));
