#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  const tslab_epoch next = open_epoch("next", 0);
  check_stale(e);
  CHECK(tslab_epoch_close(next, NULL) == 0);
}

MISUSE("an old id when its slot serves another epoch: ESTALE", RETURNED, NULL);
