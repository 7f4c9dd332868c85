#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free_sized(block, SMALL);
  tslab_free_sized(block, SMALL);
}

MISUSE("free_sized twice", NAMED, FREED("free_sized", SMALL_TEXT));
