#include "misuse.h"

static void run(void) {
  void *block = culprit_of(HUGE);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a 1 GiB block freed twice", NAMED, TWICE(LARGE_TEXT));
