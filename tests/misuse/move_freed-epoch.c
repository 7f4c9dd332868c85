#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  tslab_free(block);
  CHECK(tslab_epoch_move(block, 0) == NULL);
}

MISUSE("tslab_epoch_move of a freed block of an epoch", NAMED, FREED("tslab_epoch_move", LAST_TEXT),
       .hardened = {NAMED, FREED("tslab_epoch_move", CHUNK_TEXT)});
