#include "misuse.h"

static void run(void) {
  tslab_free(culprit((void *)(uintptr_t)run));
}

MISUSE("a function freed", NAMED, FOREIGN("free"));
