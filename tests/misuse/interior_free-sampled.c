#include "misuse.h"

static void run(void) {
  char *block = sampled_in(0, MEDIUM);
  tslab_free(culprit(block + 4096));
  tslab_free(block);
}

MISUSE("a pointer into a block that the heap profile sampled", NAMED, INTERIOR("free", 4096, MEDIUM_BLOCK) SAMPLED,
       SAMPLED_BY);
