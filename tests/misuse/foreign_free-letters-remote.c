#include "misuse.h"

static void run(void) {
  free_elsewhere(culprit((void *)(uintptr_t)0x4141414141414141));
}

MISUSE("text freed as a pointer by another thread", NAMED, FOREIGN("free"));
