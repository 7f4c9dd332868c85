#include "misuse.h"

static void run(void) {
  for (size_t size = SIZE_MAX; size > PTRDIFF_MAX; size -= SIZE_MAX / 7) {
    errno = 0;
    CHECK(tslab_malloc(size) == NULL && errno == ENOMEM);
  }
  errno = 0;
  CHECK(tslab_malloc((size_t)PTRDIFF_MAX + 1) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_malloc(PTRDIFF_MAX) == NULL && errno == ENOMEM);
}

MISUSE("malloc of more than half the address space: ENOMEM", RETURNED, NULL);
