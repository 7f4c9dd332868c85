#include "misuse.h"

static void run(void) {
  CHECK(tslab_malloc_usable_size(culprit((char *)tslab_malloc(LARGE) + 100)) == 0);
}

MISUSE("malloc_usable_size of a pointer into a large block", NAMED, INTERIOR("malloc_usable_size", 100, LARGE_TEXT));
