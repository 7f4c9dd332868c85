#include "misuse.h"

static void run(void) {
  void *block;
  const tslab_handle handle = tslab_handle_alloc(0, LARGE, &block);
  CHECK(handle != 0 && tslab_handle_free(handle));
  tslab_purge();
  CHECK(!tslab_handle_free(handle) && tslab_handle_get(handle) == NULL);
}

MISUSE("a handle of a large block freed twice, its memory with the kernel: false", RETURNED, NULL);
