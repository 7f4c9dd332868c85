#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch child = open_options((tslab_epoch_options){.parent = e});
  CHECK(child != 0);
  CHECK(tslab_epoch_destroy(e, NULL) == EPERM);
  tslab_free(block_in(child, SMALL));
  CHECK(tslab_epoch_close(e, NULL) == 0);
  check_stale(child);
}

MISUSE("destroyed with a child that lacks the flag: EPERM", RETURNED, NULL);
