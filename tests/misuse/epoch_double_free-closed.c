#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL)), *pins = block_in(e, SMALL);
  tslab_free(block);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  tslab_free(block);
  tslab_free(pins);
}

MISUSE("a block of an epoch freed before a close and after it", NAMED, TWICE(CHUNK_TEXT));
