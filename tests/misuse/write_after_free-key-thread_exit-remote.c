#include "misuse.h"

static void *writes_late(void *unused) {
  char *block = culprit_of(SMALL);
  tslab_free(block);
  memset(block + 8, 0x33, 8);
  return unused;
}

static void run(void) {
  elsewhere(writes_late, NULL);
  tslab_purge();
}

MISUSE("the second word of a freed block written by a thread that ends; named when its list goes to the slabs", NAMED,
       CHANGED_AT_8(SMALL_TEXT),
       .hardened = {NAMED, WRITTEN(8)});
