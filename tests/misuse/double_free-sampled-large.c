#include "misuse.h"

static void run(void) {
  char *block = culprit(sampled_in(0, LARGE));
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a sampled large block freed twice", NAMED, TWICE(LARGE_TEXT) SAMPLED_LAST, SAMPLED_BY);
