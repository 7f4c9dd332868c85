#include "misuse.h"

static void run(void) {
  tslab_free(culprit((char *)tslab_malloc(HUGE) + HUGE / 2));
}

MISUSE("a pointer into a 1 GiB block", NAMED, INTERIOR("free", 536870912, LARGE_TEXT));
