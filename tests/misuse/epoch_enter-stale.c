#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  check_stale(e);
}

MISUSE("an epoch entered, closed, allocated in that has ended: ESTALE", RETURNED, NULL);
