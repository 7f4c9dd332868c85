#include "misuse.h"

static void run(void) {
  volatile char *block = culprit_of(SMALL);
  tslab_free((void *)(uintptr_t)block);
  dprintf(1, "%d\n", block[20]);
  harm(true);
}

MISUSE("a freed block read", MISSED, NULL);
