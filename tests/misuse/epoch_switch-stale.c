#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  errno = 0;
  CHECK(tslab_epoch_switch(e) == 0 && errno == ESTALE);
  CHECK(tslab_epoch_current() == 0);
}

MISUSE("switched to an epoch that has ended: ESTALE, nothing changes", RETURNED, NULL);
