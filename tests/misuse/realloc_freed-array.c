#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  CHECK(tslab_reallocarray(block, 50, 100) == NULL);
}

MISUSE("reallocarray of a freed block", NAMED, FREED("realloc", SMALL_TEXT));
