#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL), *never = block + SMALL;
  while ((uintptr_t)(never + SMALL) / GRANULE == (uintptr_t)block / GRANULE) never += SMALL;
  free_elsewhere(culprit(never - SMALL));
}

MISUSE("a block freed that no malloc has returned yet, by another thread", NAMED, UNUSED("free", SMALL_TEXT));
