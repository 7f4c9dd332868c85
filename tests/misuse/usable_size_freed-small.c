#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  CHECK(tslab_malloc_usable_size(block) == 0);
}

MISUSE("malloc_usable_size of a freed small block", NAMED, FREED("malloc_usable_size", SMALL_TEXT));
