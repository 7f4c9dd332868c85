#include "misuse.h"

static void run(void) {
  volatile size_t no_power = SIZE_MAX / 2 + 2, too_large = SIZE_MAX / 2 + 1; /* compilers warn of what they see */
  errno = 0;
  CHECK(tslab_aligned_alloc(no_power, 10) == NULL && errno == EINVAL);
  errno = 0;
  CHECK(tslab_aligned_alloc(too_large, 10) == NULL && errno == ENOMEM);
}

MISUSE("aligned_alloc with no power of two that can be: EINVAL; with too large a one: ENOMEM", RETURNED, NULL);
