#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL);
  tslab_free(block);
  tslab_purge();
  tslab_free(culprit(block + 32));
}

MISUSE("a pointer into a freed block whose memory is with the kernel", NAMED, ENDED("free"));
