#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  tslab_free(block);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  tslab_purge();
  tslab_free(block);
}

MISUSE("a block of an epoch freed again when the epoch is gone and its memory with the kernel", NAMED, ENDED("free"));
