#include "misuse.h"

static void run(void) {
  CHECK(tslab_realloc(culprit((char *)tslab_malloc(LARGE) + 4096), 5000) == NULL);
}

MISUSE("realloc of a pointer into a large block", NAMED, INTERIOR("realloc", 4096, LARGE_TEXT));
