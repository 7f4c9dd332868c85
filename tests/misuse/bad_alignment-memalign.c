#include "misuse.h"

static void run(void) {
  errno = 0;
  CHECK(tslab_memalign(SIZE_MAX, 10) == NULL && errno == EINVAL);
  void *block = tslab_memalign(3, 10);
  CHECK(block != NULL && (uintptr_t)block % 4 == 0);
  tslab_free(block);
}

MISUSE("memalign with no power of two takes the next one, as glibc does; EINVAL when there is none", RETURNED, NULL);
