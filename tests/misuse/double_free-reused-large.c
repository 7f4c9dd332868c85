#include "misuse.h"

static void run(void) {
  void *block = culprit_of(LARGE);
  tslab_free(block);
  void *others = tslab_malloc(LARGE);
  harm(others == block);
  tslab_free(block);
  harm(tslab_malloc(LARGE) == others);
}

MISUSE("a large block freed again when somebody else has it: now two have it", MISSED, NULL);
