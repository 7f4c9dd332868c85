#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(tslab_epoch_malloc(e, HUGE));
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a 1 GiB block of an epoch freed twice", NAMED, TWICE(LARGE_TEXT));
