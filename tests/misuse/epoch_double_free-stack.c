#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = block_in(e, SMALL), *last = culprit(block_in(e, SMALL));
  tslab_free(last);
  tslab_free(block);
  block_in(e, SMALL / 2);
  tslab_free(last);
}

MISUSE("a block of an epoch freed again after the one before it, whose place a smaller one has", NAMED,
       ENDED("free"), .hardened = {NAMED, TWICE(CHUNK_TEXT)});
