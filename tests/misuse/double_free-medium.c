#include "misuse.h"

static void run(void) {
  void *block = culprit_of(MEDIUM);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a medium block freed twice", NAMED, TWICE_OR_WRITTEN(MEDIUM_TEXT), .hardened = {NAMED, TWICE(MEDIUM_TEXT)});
