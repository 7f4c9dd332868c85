#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_ANY);
  free_elsewhere(block);
  free_elsewhere(block);
}

MISUSE("a guarded block freed by two other threads", NAMED, TWICE(ODD_BLOCK) FREED_TOO, GUARDED_BY);
