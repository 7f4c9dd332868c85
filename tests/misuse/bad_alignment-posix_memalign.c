#include "misuse.h"

static char data[1];

static void run(void) {
  void *out = data;
  CHECK(tslab_posix_memalign(&out, 0, 10) == EINVAL);
  CHECK(tslab_posix_memalign(&out, 3, 10) == EINVAL);
  CHECK(tslab_posix_memalign(&out, 4, 10) == EINVAL);
  CHECK(tslab_posix_memalign(&out, 24, 10) == EINVAL);
  CHECK(tslab_posix_memalign(&out, SIZE_MAX, 10) == EINVAL);
  CHECK(out == data);
}

MISUSE("posix_memalign with what is no power of two, or less than a pointer: EINVAL, nothing stored", RETURNED, NULL);
