#include "misuse.h"

static void run(void) {
  tslab_free(culprit((void *)(uintptr_t)0x4141414141414141));
}

MISUSE("text freed as a pointer", NAMED, FOREIGN("free"));
