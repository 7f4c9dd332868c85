#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  free_elsewhere(block);
}

MISUSE("a small block freed here, then by another thread", NAMED, TWICE(SMALL_TEXT));
