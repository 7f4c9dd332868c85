#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  tslab_purge();
  tslab_free(block);
}

MISUSE("a small block freed after its epoch was destroyed and its memory went to the kernel", NAMED, ENDED("free"));
