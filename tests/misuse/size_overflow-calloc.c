#include "misuse.h"

static void run(void) {
  errno = 0;
  CHECK(tslab_calloc(SIZE_MAX / 2 + 2, 2) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_calloc((size_t)1 << 32, (size_t)1 << 32) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_calloc(SIZE_MAX, SIZE_MAX) == NULL && errno == ENOMEM);
}

MISUSE("calloc whose product wraps to something small: ENOMEM", RETURNED, NULL);
