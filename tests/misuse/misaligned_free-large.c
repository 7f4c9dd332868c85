#include "misuse.h"

static void run(void) {
  tslab_free(culprit((char *)tslab_malloc(LARGE) + 1));
}

MISUSE("a pointer 1 byte into a large block", NAMED, INTERIOR("free", 1, LARGE_TEXT));
