#include "misuse.h"

static void run(void) {
  CHECK(tslab_malloc_usable_size(culprit((void *)(uintptr_t)16)) == 0);
}

MISUSE("malloc_usable_size of a small number", NAMED, FOREIGN("malloc_usable_size"));
