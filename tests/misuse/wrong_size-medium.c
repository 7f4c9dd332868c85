#include "misuse.h"

static void run(void) {
  tslab_free_sized(culprit_of(MEDIUM), 50000);
}

MISUSE("free_sized with more than a medium block has", NAMED, WRONG_SIZE(50000, MEDIUM_TEXT));
