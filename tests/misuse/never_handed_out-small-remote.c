#include "misuse.h"

/* The last of the slab that is on no list yet: as the kernel gave it. */
static void run(void) {
  char *block = tslab_malloc(SMALL), *never = block + SMALL;
  while ((uintptr_t)(never + SMALL) / GRANULE == (uintptr_t)block / GRANULE) never += SMALL;
  for (never -= SMALL; ((uintptr_t *)(void *)never)[1] != 0;) never -= SMALL;
  free_elsewhere(culprit(never));
}

MISUSE("a block freed that no malloc has returned yet, by another thread", NAMED, UNUSED("free", SMALL_TEXT));
