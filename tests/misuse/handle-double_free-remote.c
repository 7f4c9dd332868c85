#include "misuse.h"

static void *frees(void *handle) {
  CHECK(!tslab_handle_free(*(tslab_handle *)handle));
  return handle;
}

static void run(void) {
  void *block;
  tslab_handle handle = tslab_handle_alloc(0, SMALL, &block);
  CHECK(handle != 0 && tslab_handle_free(handle));
  elsewhere(frees, &handle);
}

MISUSE("a handle freed a second time by another thread: false", RETURNED, NULL);
