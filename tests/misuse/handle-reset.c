#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block;
  const tslab_handle handle = tslab_handle_alloc(e, SMALL, &block);
  CHECK(tslab_epoch_reset(e, NULL) == 0);
  CHECK(tslab_handle_get(handle) == NULL && !tslab_handle_free(handle));
}

MISUSE("a handle used after its epoch was reset: NULL and false", RETURNED, NULL);
