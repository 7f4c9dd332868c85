#include "misuse.h"

static void run(void) {
  void *block = culprit_of(MEDIUM);
  free_elsewhere(block);
  free_elsewhere(block);
}

MISUSE("a medium block freed by two other threads", NAMED, TWICE(MEDIUM_TEXT));
