#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  CHECK(tslab_epoch_enter(e) == 0);
  tslab_free(block);
  tslab_free(block);
  CHECK(tslab_epoch_leave(e) == 0);
}

MISUSE("a small block of an epoch freed twice inside the scope", NAMED, TWICE(LAST_TEXT),
       .hardened = {NAMED, TWICE(CHUNK_TEXT)});
