#include "misuse.h"

static void run(void) {
  CHECK(tslab_malloc_usable_size(culprit((char *)tslab_malloc(SMALL) + 32)) == 0);
}

MISUSE("malloc_usable_size of a pointer into a small block", NAMED, INTERIOR("malloc_usable_size", 32, SMALL_BLOCK));
