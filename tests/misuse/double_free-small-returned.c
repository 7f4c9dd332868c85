#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  tslab_purge();
  tslab_free(block);
}

MISUSE("a small block freed again after its memory went to the kernel", NAMED, TWICE(SMALL_TEXT));
