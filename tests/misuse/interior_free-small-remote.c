#include "misuse.h"

static void run(void) {
  free_elsewhere(culprit((char *)tslab_malloc(SMALL) + 32));
}

MISUSE("a pointer into a small block freed by another thread", NAMED, INTERIOR("free", 32, SMALL_BLOCK));
