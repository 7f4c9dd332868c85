#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  tslab_free(block);
  void *others = block_in(e, SMALL);
  harm(others == block);
  tslab_free(block);
  harm(block_in(e, SMALL) == others);
}

MISUSE("a block of an epoch freed again when somebody else has its place", MISSED, NULL,
       .hardened = {NAMED, TWICE(CHUNK_TEXT)});
