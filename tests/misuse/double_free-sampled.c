#include "misuse.h"

static void run(void) {
  char *block = culprit(sampled_in(0, MEDIUM));
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a block that the heap profile sampled freed twice", NAMED, TWICE(MEDIUM_TEXT) SAMPLED, SAMPLED_BY);
