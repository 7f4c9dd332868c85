#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a small block freed twice, the last thing that a process does", NAMED, TWICE_LATE(SMALL_TEXT),
       .hardened = {NAMED, TWICE(SMALL_TEXT)},
       .leaves = true);
