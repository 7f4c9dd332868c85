#include "misuse.h"

static void refuses(size_t alignment, int error) {
  errno = 0;
  CHECK(tslab_aligned_alloc(alignment, 10) == NULL && errno == error);
}

static void run(void) {
  volatile size_t none = 0, odd = 48, no_power = SIZE_MAX / 2 + 2, too_large = SIZE_MAX / 2 + 1; /* compilers warn */
  refuses(none, EINVAL);
  refuses(odd, EINVAL);
  refuses(no_power, EINVAL);
  refuses(too_large, ENOMEM);
}

MISUSE("aligned_alloc with no power of two: EINVAL, as in glibc 2.38; with too large a one: ENOMEM", RETURNED, NULL);
