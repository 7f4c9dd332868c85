#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("plain", 0);
  CHECK(tslab_epoch_destroy(e, NULL) == EPERM);
  CHECK(tslab_epoch_reset(e, NULL) == EPERM);
  tslab_free(block_in(e, SMALL));
  CHECK(tslab_epoch_close(e, NULL) == 0);
}

MISUSE("destroyed and reset without TSLAB_EPOCH_DESTROYABLE: EPERM", RETURNED, NULL);
