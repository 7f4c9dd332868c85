#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *stale = block_in(e, SMALL);
  CHECK(tslab_epoch_reset(e, NULL) == 0);
  void *block = culprit(block_in(e, SMALL));
  CHECK(block == stale);
  tslab_free(stale);
  tslab_free(block);
}

MISUSE("a block freed once, and once by a pointer from before a reset that the new block has in common", NAMED,
       OR_STALE(TWICE(LAST_TEXT)), .hardened = {NAMED, OR_STALE(TWICE(CHUNK_TEXT))});
