#include "misuse.h"

static void run(void) {
  volatile size_t none = SIZE_MAX, three = 3; /* compilers warn of what they see */
  errno = 0;
  CHECK(tslab_memalign(none, 10) == NULL && errno == EINVAL);
  void *block = tslab_memalign(three, 10);
  CHECK(block != NULL && (uintptr_t)block % 4 == 0);
  tslab_free(block);
}

MISUSE("memalign with no power of two takes the next one, as glibc does; EINVAL when there is none", RETURNED, NULL);
