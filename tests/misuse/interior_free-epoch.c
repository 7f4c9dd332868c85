#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  tslab_free(culprit((char *)block_in(e, SMALL) + 32));
}

MISUSE("a pointer into a small block of an epoch", NAMED, INTERIOR("free", 32, CHUNK_TEXT));
