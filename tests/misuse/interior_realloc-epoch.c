#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_realloc(culprit((char *)block_in(e, SMALL) + 32), 5000) == NULL);
}

MISUSE("realloc of a pointer into a block of an epoch", NAMED, INTERIOR("realloc", 32, CHUNK_TEXT));
