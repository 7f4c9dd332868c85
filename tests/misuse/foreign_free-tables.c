#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL);
  while (tslab_owns(block - GRANULE)) block -= GRANULE;
  tslab_free(culprit(block - GRANULE));
}

MISUSE("the allocator's own tables freed", NAMED, FOREIGN("free"));
