#include "misuse.h"

static void run(void) {
  tslab_free(culprit((char *)tslab_malloc(MEDIUM) + 4096));
}

MISUSE("a pointer into a medium block", FATAL, INTERIOR("free", 4096, MEDIUM_BLOCK), .hardened = {.end = NAMED});
