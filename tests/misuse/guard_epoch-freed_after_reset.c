#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  char *block = guarded_in(e, AT_ANY);
  CHECK(tslab_epoch_reset(e, NULL) == 0);
  tslab_free(block);
}

MISUSE("a guarded block of an epoch freed after its reset", NAMED,
       "free of 0xADDR after the end of its epoch (" ODD_BLOCK OF_MISUSED ")" ENDED_TOO,
       GUARDED_BY);
