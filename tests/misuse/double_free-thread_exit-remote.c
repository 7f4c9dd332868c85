#include "misuse.h"

static void *frees_twice(void *unused) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  tslab_free(block);
  return unused;
}

static void run(void) {
  elsewhere(frees_twice, NULL);
  tslab_purge();
}

MISUSE("a block freed twice by a thread that ends; named when its list goes to the slabs", NAMED,
       TWICE_LATE(SMALL_TEXT), .hardened = {NAMED, TWICE(SMALL_TEXT)});
