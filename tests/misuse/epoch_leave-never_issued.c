#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_enter(e) == 0);
  CHECK(tslab_epoch_leave(NEVER_ISSUED) == EINVAL);
  CHECK(tslab_epoch_leave(e) == 0);
}

MISUSE("an id left that is none: EINVAL", RETURNED, NULL);
