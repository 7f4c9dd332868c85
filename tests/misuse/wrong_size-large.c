#include "misuse.h"

static void run(void) {
  tslab_free_sized(culprit_of(LARGE), (size_t)64 << 20);
}

MISUSE("free_sized with more than a large block has", NAMED, WRONG_SIZE(67108864, LARGE_TEXT));
