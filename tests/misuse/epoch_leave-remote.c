#include "misuse.h"

static void *leaves(void *e) {
  CHECK(tslab_epoch_leave(*(tslab_epoch *)e) == EINVAL);
  return e;
}

static void run(void) {
  tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_enter(e) == 0);
  elsewhere(leaves, &e);
  CHECK(tslab_epoch_current() == e);
  CHECK(tslab_epoch_leave(e) == 0);
}

MISUSE("left by another thread than entered it: EINVAL", RETURNED, NULL);
