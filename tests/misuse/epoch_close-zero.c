#include "misuse.h"

static void run(void) {
  CHECK(tslab_epoch_close(0, NULL) == EPERM);
  CHECK(tslab_epoch_close_step(0, 1000, NULL) == EPERM);
  CHECK(tslab_epoch_destroy(0, NULL) == EPERM);
  CHECK(tslab_epoch_reset(0, NULL) == EPERM);
}

MISUSE("epoch 0 closed, destroyed, reset: EPERM", RETURNED, NULL);
