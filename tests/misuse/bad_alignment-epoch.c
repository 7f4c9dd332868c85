#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  errno = 0;
  CHECK(tslab_epoch_aligned_alloc(e, 0, 10) == NULL && errno == EINVAL);
  errno = 0;
  CHECK(tslab_epoch_aligned_alloc(e, 48, 10) == NULL && errno == EINVAL);
  errno = 0;
  CHECK(tslab_epoch_aligned_alloc(e, (size_t)1 << 63, 10) == NULL && errno == ENOMEM);
}

MISUSE("tslab_epoch_aligned_alloc with no power of two: EINVAL", RETURNED, NULL);
