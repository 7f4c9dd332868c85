#include "misuse.h"

static void run(void) {
  void *block = culprit_of(LARGE);
  free_elsewhere(block);
  free_elsewhere(block);
}

MISUSE("a large block freed by two other threads", NAMED, TWICE(LARGE_TEXT));
