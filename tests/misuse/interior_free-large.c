#include "misuse.h"

static void run(void) {
  tslab_free(culprit((char *)tslab_malloc(LARGE) + 65536));
}

MISUSE("a pointer into a large block", NAMED, INTERIOR("free", 65536, LARGE_TEXT));
