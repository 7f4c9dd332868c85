#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a small block freed twice", NAMED, CHANGED(SMALL_TEXT, "*"), .hardened = {NAMED, TWICE(SMALL_TEXT)});
