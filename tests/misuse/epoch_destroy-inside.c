#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_enter(e) == 0);
  CHECK(tslab_epoch_destroy(e, NULL) == EBUSY);
  CHECK(tslab_epoch_leave(e) == 0);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
}

MISUSE("destroyed from inside: EBUSY, nothing done", RETURNED, NULL);
