#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  tslab_free(block);
  CHECK(tslab_realloc(block, 5000) == NULL);
}

MISUSE("realloc of a freed block of an epoch", NAMED, FREED("realloc", LAST_TEXT),
       .hardened = {NAMED, FREED("realloc", CHUNK_TEXT)});
