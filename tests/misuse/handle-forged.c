#include "misuse.h"

static void run(void) {
  void *block;
  const tslab_handle handle = tslab_handle_alloc(0, SMALL, &block);
  for (int bit = 0; bit < 64; bit++) {
    CHECK(tslab_handle_get(handle ^ (uint64_t)1 << bit) == NULL);
    CHECK(!tslab_handle_free(handle ^ (uint64_t)1 << bit));
  }
  CHECK(tslab_handle_get(0) == NULL && !tslab_handle_free(0));
  CHECK(tslab_handle_get(handle + 1) == NULL && tslab_handle_get((tslab_handle)(uintptr_t)block) == NULL);
  CHECK(tslab_handle_free(handle));
}

MISUSE("numbers that are no handles: NULL and false", RETURNED, NULL);
