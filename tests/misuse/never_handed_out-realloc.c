#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL), *never = block + SMALL;
  while ((uintptr_t)(never + SMALL) / GRANULE == (uintptr_t)block / GRANULE) never += SMALL;
  CHECK(tslab_realloc(culprit(never - SMALL), 5000) == NULL);
}

MISUSE("realloc of a block that no malloc has returned yet", NAMED, UNUSED("realloc", SMALL_TEXT));
