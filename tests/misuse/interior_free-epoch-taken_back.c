#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  char *block = block_in(e, SMALL);
  tslab_free(block);
  tslab_free(culprit(block + 16));
}

MISUSE("a pointer into a block of an epoch that was just freed", NAMED, ENDED("free"),
       .hardened = {NAMED, INTERIOR("free", 16, CHUNK_TEXT)});
