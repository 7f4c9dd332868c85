#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  tslab_free(culprit((char *)block_in(e, SMALL) + 1));
}

MISUSE("a pointer 1 byte into a block of an epoch", NAMED, INTERIOR("free", 1, CHUNK_TEXT));
