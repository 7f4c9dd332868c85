#include "misuse.h"

static void run(void) {
  volatile char *block = culprit_of(LARGE);
  tslab_free((void *)(uintptr_t)block);
  harm(block[20] == 0x22);
}

MISUSE("a freed large block read", MISSED, NULL);
