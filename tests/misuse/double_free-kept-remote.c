#include "misuse.h"

static void *keep_twice(void *block) {
  void *own = tslab_malloc(SMALL); /* the thread uses the size, so it keeps what it frees of others */
  tslab_free(block);
  tslab_free(block);
  return own;
}

static void run(void) {
  elsewhere(keep_twice, culprit_of(SMALL));
  tslab_purge();
}

MISUSE("a small block freed twice by another thread, which keeps it on its own list; named when that goes to the slabs",
       NAMED, TWICE_LATE(SMALL_TEXT), .hardened = {NAMED, TWICE(SMALL_TEXT)});
