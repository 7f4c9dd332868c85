#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", 0);
  char *block = guarded_in(e, AT_ANY);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a guarded block of a closed epoch freed twice", NAMED, TWICE(ODD_BLOCK OF_MISUSED) FREED_TOO, GUARDED_BY);
