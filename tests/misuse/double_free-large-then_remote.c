#include "misuse.h"

static void run(void) {
  void *block = culprit_of(LARGE);
  tslab_free(block);
  free_elsewhere(block);
}

MISUSE("a large block freed here, then by another thread", NAMED, TWICE(LARGE_TEXT));
