#include "misuse.h"

static void run(void) {
  tslab_free(culprit((char *)tslab_malloc(SMALL) + 8));
}

MISUSE("a pointer 8 bytes past the start of a small block freed", FATAL,
       INTERIOR("free", 8, SMALL_BLOCK), .hardened = {.end = NAMED});
