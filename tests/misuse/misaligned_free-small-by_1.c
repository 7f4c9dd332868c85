#include "misuse.h"

static void run(void) {
  tslab_free(culprit((char *)tslab_malloc(SMALL) + 1));
}

MISUSE("a pointer 1 byte past the start of a small block freed", FATAL,
       INTERIOR("free", 1, SMALL_BLOCK), .hardened = {.end = NAMED});
