#include "misuse.h"

static void run(void) {
  free_elsewhere(culprit((char *)tslab_malloc(SMALL) + 8));
}

MISUSE("a pointer 8 bytes past the start freed by another thread", NAMED, INTERIOR("free", 8, SMALL_BLOCK));
