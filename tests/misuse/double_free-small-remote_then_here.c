#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  free_elsewhere(block);
  tslab_free(block);
}

MISUSE("a small block freed by another thread, then here", NAMED, TWICE_OR_WRITTEN(SMALL_TEXT),
       .hardened = {NAMED, TWICE(SMALL_TEXT)});
