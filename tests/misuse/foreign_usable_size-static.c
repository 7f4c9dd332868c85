#include "misuse.h"

static char data[4096];

static void run(void) {
  CHECK(tslab_malloc_usable_size(culprit(data + 64)) == 0);
}

MISUSE("malloc_usable_size of a static array", NAMED, FOREIGN("malloc_usable_size"));
