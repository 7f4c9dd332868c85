#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_ANY);
  tslab_free(block);
  CHECK(tslab_realloc(block, 500) == NULL);
}

MISUSE("realloc of a guarded block after its free", NAMED, FREED("realloc", ODD_BLOCK) FREED_TOO, GUARDED_BY);
