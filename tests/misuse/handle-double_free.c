#include "misuse.h"

static void run(void) {
  void *block;
  const tslab_handle handle = tslab_handle_alloc(0, SMALL, &block);
  CHECK(handle != 0 && tslab_handle_get(handle) == block);
  CHECK(tslab_handle_free(handle));
  CHECK(!tslab_handle_free(handle));
  CHECK(tslab_handle_get(handle) == NULL);
}

MISUSE("a handle freed twice: false", RETURNED, NULL);
