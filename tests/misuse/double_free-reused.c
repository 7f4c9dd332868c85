#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  void *others = tslab_malloc(SMALL);
  harm(others == block);
  tslab_free(block);
  harm(tslab_malloc(SMALL) == others);
}

MISUSE("a block freed again when somebody else has it: now two have it", MISSED, NULL,
       .hardened = {NAMED, TWICE(SMALL_TEXT)});
