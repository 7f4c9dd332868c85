#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(promoted_block(e));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  tslab_free(block);
}

MISUSE("a block of a slab freed after its epoch was destroyed", NAMED, TWICE(SMALL_TEXT));
