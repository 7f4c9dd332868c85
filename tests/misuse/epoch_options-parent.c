#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  errno = 0;
  CHECK(open_options((tslab_epoch_options){.parent = e}) == 0 && errno == ESTALE);
  errno = 0;
  CHECK(open_options((tslab_epoch_options){.parent = NEVER_ISSUED}) == 0 && errno == ESTALE);
}

MISUSE("a parent that has ended, or never was: ESTALE", RETURNED, NULL);
