#include "misuse.h"

static void run(void) {
  void *block = culprit_of(MEDIUM);
  tslab_free(block);
  CHECK(tslab_realloc(block, 5000) == NULL);
}

MISUSE("realloc of a freed medium block", NAMED, FREED("realloc", MEDIUM_TEXT));
