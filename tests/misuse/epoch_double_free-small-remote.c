#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  free_elsewhere(block);
  free_elsewhere(block);
}

MISUSE("a small block of an epoch freed by two other threads", NAMED, TWICE(CHUNK_TEXT));
