#include "misuse.h"

static void run(void) {
  void *block = culprit_of(HUGE);
  tslab_free(block);
  CHECK(tslab_realloc(block, 5000) == NULL);
}

MISUSE("realloc of a freed 1 GiB block", NAMED, FREED("realloc", LARGE_TEXT));
