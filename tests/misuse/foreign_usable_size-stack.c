#include "misuse.h"

static void run(void) {
  char local[64];
  CHECK(tslab_malloc_usable_size(culprit(local + 16)) == 0);
}

MISUSE("malloc_usable_size of a local variable", NAMED, STACK("malloc_usable_size"));
