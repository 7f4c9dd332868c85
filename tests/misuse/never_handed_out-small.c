#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL), *never = block + SMALL;
  while ((uintptr_t)(never + SMALL) / GRANULE == (uintptr_t)block / GRANULE) never += SMALL;
  tslab_free(culprit(never - SMALL));
  harm(tslab_malloc(SMALL) == never - SMALL);
}

MISUSE("a block freed that no malloc has returned yet, in a slab of the thread", MISSED, NULL,
       .hardened = {NAMED, UNUSED("free", SMALL_TEXT)});
