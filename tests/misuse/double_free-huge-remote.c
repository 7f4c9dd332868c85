#include "misuse.h"

static void run(void) {
  void *block = culprit_of(HUGE);
  free_elsewhere(block);
  free_elsewhere(block);
}

MISUSE("a 1 GiB block freed by two other threads", NAMED, TWICE(LARGE_TEXT));
