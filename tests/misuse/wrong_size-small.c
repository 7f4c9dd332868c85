#include "misuse.h"

static void run(void) {
  tslab_free_sized(culprit_of(SMALL), 5000);
}

MISUSE("free_sized with more than a small block has", NAMED, WRONG_SIZE(5000, SMALL_TEXT));
