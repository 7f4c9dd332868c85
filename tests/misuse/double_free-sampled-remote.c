#include "misuse.h"

static void run(void) {
  char *block = culprit(sampled_in(0, MEDIUM));
  tslab_free(block);
  free_elsewhere(block);
}

MISUSE("a sampled block freed here, then by another thread", NAMED, TWICE(MEDIUM_TEXT) SAMPLED, SAMPLED_BY);
