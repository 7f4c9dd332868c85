#include "misuse.h"

static void run(void) {
  void *block = culprit(tslab_calloc(3, 32));
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a block of calloc freed twice", NAMED, CHANGED(SMALL_TEXT, "*"), .hardened = {NAMED, TWICE(SMALL_TEXT)});
