#include "misuse.h"

static void run(void) {
  free_elsewhere(culprit((char *)tslab_malloc(LARGE) + 4096));
}

MISUSE("a pointer into a large block freed by another thread", NAMED, INTERIOR("free", 4096, LARGE_TEXT));
