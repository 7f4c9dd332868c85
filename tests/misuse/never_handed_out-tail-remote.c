#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL);
  while (((uintptr_t)block / GRANULE + 1) * GRANULE % SMALL == 0) block = tslab_malloc(SMALL);
  char *tail = block;
  while ((uintptr_t)(tail + SMALL - 1) / GRANULE == (uintptr_t)block / GRANULE) tail += SMALL;
  free_elsewhere(culprit(tail));
}

MISUSE("the rest behind the last block of a slab freed by another thread", NAMED, FOREIGN("free"));
