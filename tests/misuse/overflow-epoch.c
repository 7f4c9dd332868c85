#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  char *block = block_in(e, SMALL), *next = culprit(block_in(e, SMALL));
  CHECK(next == block + SMALL);
  block[SMALL] = 0x33;
  harm(next[0] == 0x33);
}

MISUSE("a write past a block of an epoch", MISSED, NULL);
