#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_enter(e) == 0);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  void *block = tslab_malloc(SMALL);
  CHECK(tslab_epoch_of(block) == 0);
  CHECK(status_of(e).diverted == 1);
  CHECK(tslab_epoch_leave(e) == 0);
  check_stale(e);
  tslab_free(block);
}

MISUSE("closed by a thread that is inside and goes on allocating: epoch 0 serves, and it is counted", RETURNED, NULL);
