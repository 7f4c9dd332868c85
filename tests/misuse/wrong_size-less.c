#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free_sized(block, 10);
  harm(true);
}

MISUSE("free_sized with less than was asked for: nothing is lost", MISSED, NULL);
