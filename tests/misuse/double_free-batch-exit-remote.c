#include "misuse.h"

static void *make(void *place) {
  *(void **)place = culprit_of(SMALL);
  return NULL;
}

static void run(void) {
  void *block;
  elsewhere(make, &block);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a small block of another thread freed twice, the last thing that a process does", NAMED, TWICE_LATE(SMALL_TEXT),
       .hardened = {NAMED, TWICE(SMALL_TEXT)},
       .leaves = true);
