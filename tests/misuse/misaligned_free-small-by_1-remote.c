#include "misuse.h"

static void run(void) {
  free_elsewhere(culprit((char *)tslab_malloc(SMALL) + 1));
}

MISUSE("a pointer 1 byte past the start freed by another thread", NAMED, INTERIOR("free", 1, SMALL_BLOCK));
