#include "misuse.h"

static void run(void) {
  void *out = NULL;
  CHECK(tslab_posix_memalign(&out, 4096, SIZE_MAX - 4095) == ENOMEM && out == NULL);
  errno = 0;
  CHECK(tslab_aligned_alloc(65536, SIZE_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_valloc(SIZE_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_pvalloc(SIZE_MAX) == NULL && errno == ENOMEM);
}

MISUSE("aligned blocks whose size wraps when it is rounded up: ENOMEM", RETURNED, NULL);
