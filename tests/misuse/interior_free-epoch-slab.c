#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  tslab_free(culprit((char *)promoted_block(e) + 32));
}

MISUSE("a pointer into a block of an epoch's slab", NAMED, INTERIOR("free", 32, SMALL_BLOCK));
