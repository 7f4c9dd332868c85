#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  realloc_elsewhere(block);
}

MISUSE("realloc of a freed block by another thread", NAMED, FREED("realloc", SMALL_TEXT));
