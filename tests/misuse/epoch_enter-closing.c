#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *pins = block_in(e, SMALL);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  check_refused(e, ESHUTDOWN);
  tslab_free(pins);
}

MISUSE("a closing epoch entered, closed, allocated in: ESHUTDOWN", RETURNED, NULL);
