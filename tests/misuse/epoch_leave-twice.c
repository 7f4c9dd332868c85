#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_enter(e) == 0);
  CHECK(tslab_epoch_leave(e) == 0);
  CHECK(tslab_epoch_leave(e) == EINVAL);
  CHECK(tslab_epoch_leave(0) == EINVAL);
}

MISUSE("left twice: EINVAL", RETURNED, NULL);
