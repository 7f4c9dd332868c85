#include "misuse.h"

static void run(void) {
  void *block = culprit_of(HUGE);
  tslab_free(block);
  tslab_purge();
  tslab_free(block);
}

MISUSE("a 1 GiB block freed again after its memory went to the kernel", NAMED, TWICE(LARGE_TEXT));
