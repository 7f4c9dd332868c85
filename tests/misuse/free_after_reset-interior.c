#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  block_in(e, 32);
  void *block = culprit(block_in(e, 32));
  CHECK(tslab_epoch_reset(e, NULL) == 0);
  block_in(e, SMALL);
  tslab_free(block);
}

MISUSE("freed after a reset when a longer block lies there", NAMED,
       OR_MOVED_ON(INTERIOR("free", 32, CHUNK_TEXT)));
