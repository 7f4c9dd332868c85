#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  free_elsewhere(culprit((char *)block_in(e, SMALL) + 16));
}

MISUSE("a pointer into a small block of an epoch, by another thread", NAMED, INTERIOR("free", 16, CHUNK_TEXT));
