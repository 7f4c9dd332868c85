#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  tslab_free_sized(culprit(block_in(e, SMALL)), 5000);
}

MISUSE("free_sized with more than a block of an epoch has", NAMED, WRONG_SIZE(5000, CHUNK_TEXT));
