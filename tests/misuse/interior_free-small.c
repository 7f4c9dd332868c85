#include "misuse.h"

static void run(void) {
  tslab_free(culprit((char *)tslab_malloc(SMALL) + 32));
}

MISUSE("a pointer into a small block freed by the thread that allocated it", FATAL,
       INTERIOR("free", 32, SMALL_BLOCK),
       .hardened = {.end = NAMED});
