#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  tslab_purge();
  CHECK(tslab_realloc(block, 5000) == NULL);
}

MISUSE("realloc of a freed block whose memory is with the kernel", NAMED, FREED("realloc", SMALL_TEXT));
