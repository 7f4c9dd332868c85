#include "misuse.h"

static void run(void) {
  CHECK(tslab_realloc(culprit((char *)tslab_malloc(SMALL) + 32), 5000) == NULL);
}

MISUSE("realloc of a pointer into a small block", NAMED, INTERIOR("realloc", 32, SMALL_BLOCK));
