#include "misuse.h"

static void run(void) {
  tslab_free_sized(culprit_of(HUGE), SIZE_MAX);
}

MISUSE("free_sized of a 1 GiB block with more than any has", NAMED, WRONG_SIZE(18446744073709551615, LARGE_TEXT));
