#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  char *block = guarded_in(e, AT_ANY);
  CHECK(tslab_epoch_of(block) == e && tslab_epoch_destroy(e, NULL) == 0);
  block[1] = 1;
}

MISUSE("a guarded block of an epoch written after its destroy", FAULTS,
       ACCESS("use after the end of its epoch", WRITE, 1) "into 0xADDR (" ODD_BLOCK OF_MISUSED ")" ENDED_TOO,
       GUARDED_BY);
