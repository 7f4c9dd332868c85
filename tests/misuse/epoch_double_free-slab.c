#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(promoted_block(e));
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a block of an epoch that reuses memory freed twice", NAMED, TWICE(SMALL_TEXT));
