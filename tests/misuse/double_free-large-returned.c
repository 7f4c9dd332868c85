#include "misuse.h"

static void run(void) {
  void *block = culprit_of(LARGE);
  tslab_free(block);
  tslab_purge();
  tslab_free(block);
}

MISUSE("a large block freed again after its memory went to the kernel", NAMED, TWICE(LARGE_TEXT));
