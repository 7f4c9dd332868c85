#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(promoted_block(e));
  free_elsewhere(block);
  free_elsewhere(block);
}

MISUSE("a block of an epoch that reuses memory freed by two other threads", NAMED, TWICE(SMALL_TEXT));
