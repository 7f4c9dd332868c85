#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_ANY);
  tslab_free_sized(block, 5000);
}

MISUSE("free_sized with more than a guarded block has", NAMED, WRONG_SIZE(5000, "guarded block"), GUARDED_BY);
