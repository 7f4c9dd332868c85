#include "misuse.h"

static void run(void) {
  tslab_free_sized(culprit(sampled_in(0, MEDIUM)), 50000);
}

MISUSE("free_sized with more than a sampled block has", NAMED, WRONG_SIZE(50000, MEDIUM_TEXT) SAMPLED, SAMPLED_BY);
