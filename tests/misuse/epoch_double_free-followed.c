#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  block_in(e, SMALL);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a small block of an epoch freed twice, another having been taken after it", NAMED, TWICE(CHUNK_TEXT));
