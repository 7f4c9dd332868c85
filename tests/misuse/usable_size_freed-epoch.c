#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  tslab_free(block);
  CHECK(tslab_malloc_usable_size(block) == 0);
}

MISUSE("malloc_usable_size of a freed block of an epoch", NAMED, FREED("malloc_usable_size", LAST_TEXT),
       .hardened = {NAMED, FREED("malloc_usable_size", CHUNK_TEXT)});
