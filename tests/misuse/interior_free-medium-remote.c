#include "misuse.h"

static void run(void) {
  free_elsewhere(culprit((char *)tslab_malloc(MEDIUM) + 4096));
}

MISUSE("a pointer into a medium block freed by another thread", NAMED, INTERIOR("free", 4096, MEDIUM_BLOCK));
