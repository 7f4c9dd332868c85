#include "misuse.h"

static void run(void) {
  errno = 0;
  CHECK(tslab_aligned_alloc(SIZE_MAX / 2 + 2, 10) == NULL && errno == EINVAL);
  errno = 0;
  CHECK(tslab_aligned_alloc(SIZE_MAX / 2 + 1, 10) == NULL && errno == ENOMEM);
}

MISUSE("aligned_alloc with no power of two that can be: EINVAL; with too large a one: ENOMEM", RETURNED, NULL);
