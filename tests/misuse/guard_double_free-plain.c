#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_ANY);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a guarded block freed twice", NAMED, TWICE(ODD_BLOCK) FREED_TOO, GUARDED_BY);
