#include "misuse.h"

static void run(void) {
  tslab_free(culprit((void *)(uintptr_t)16));
}

MISUSE("a small number freed", NAMED, FOREIGN("free"));
