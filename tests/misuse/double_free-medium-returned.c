#include "misuse.h"

static void run(void) {
  void *block = culprit_of(MEDIUM);
  tslab_free(block);
  tslab_purge();
  tslab_free(block);
}

MISUSE("a medium block freed again after its memory went to the kernel", NAMED, TWICE(MEDIUM_TEXT));
