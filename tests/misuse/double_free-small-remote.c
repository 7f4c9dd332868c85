#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  free_elsewhere(block);
  free_elsewhere(block);
}

MISUSE("a small block freed by two other threads", NAMED, TWICE(SMALL_TEXT));
