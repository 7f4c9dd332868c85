#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  char *block = sampled_in(e, SMALL);
  tslab_free(culprit(block + 16));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
}

MISUSE("a pointer into a sampled block of an epoch", NAMED, INTERIOR("free", 16, CHUNK_TEXT) SAMPLED, SAMPLED_BY);
