#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  CHECK(tslab_epoch_destroy(e, NULL) == ESTALE);
}

MISUSE("destroyed twice: ESTALE", RETURNED, NULL);
