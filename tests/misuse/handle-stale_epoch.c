#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = NULL;
  CHECK(tslab_epoch_close(e, NULL) == 0);
  errno = 0;
  CHECK(tslab_handle_alloc(e, SMALL, &block) == 0 && errno == ESTALE && block == NULL);
}

MISUSE("a handle asked of an epoch that has ended: ESTALE", RETURNED, NULL);
