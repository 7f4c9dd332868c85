#include "misuse.h"

static void run(void) {
  void *block = culprit_of(MEDIUM);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a medium block freed twice", NAMED, CHANGED(MEDIUM_TEXT, "*"), .hardened = {NAMED, TWICE(MEDIUM_TEXT)});
