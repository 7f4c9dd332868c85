#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  errno = 0;
  CHECK(tslab_epoch_malloc(e, SIZE_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_epoch_calloc(e, (size_t)1 << 32, (size_t)1 << 32) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_epoch_aligned_alloc(e, 64, SIZE_MAX - 8) == NULL && errno == ENOMEM);
  CHECK(tslab_epoch_enter(e) == 0);
  errno = 0;
  CHECK(tslab_malloc(SIZE_MAX - 8) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_aligned_alloc(64, SIZE_MAX - 8) == NULL && errno == ENOMEM);
  CHECK(tslab_epoch_leave(e) == 0);
}

MISUSE("sizes that wrap, asked of an epoch: ENOMEM", RETURNED, NULL);
