#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_info(e, NULL) == EINVAL);
}

MISUSE("asked about with nowhere to answer: EINVAL", RETURNED, NULL);
