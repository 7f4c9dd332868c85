#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  tslab_free(culprit((char *)block_in(e, SMALL) + 20000));
}

MISUSE("what lies behind the last block of an epoch freed", NAMED,
       ENDED("free"));
