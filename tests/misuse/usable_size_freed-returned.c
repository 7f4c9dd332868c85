#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  tslab_purge();
  CHECK(tslab_malloc_usable_size(block) == 0);
}

MISUSE("malloc_usable_size of a freed block whose memory is with the kernel", NAMED,
       FREED("malloc_usable_size", SMALL_TEXT));
