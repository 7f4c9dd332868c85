#include "misuse.h"

static void run(void) {
  void *block = culprit_of(LARGE);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a large block freed twice", NAMED, TWICE(LARGE_TEXT));
