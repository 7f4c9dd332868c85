#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  tslab_free(culprit((char *)block_in(e, LARGE) + 32));
}

MISUSE("a pointer into an epoch's large block", NAMED, INTERIOR("free", 32, LARGE_TEXT));
