#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, LARGE));
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a large block of an epoch freed twice", NAMED, TWICE(LARGE_TEXT));
