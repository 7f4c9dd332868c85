#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  char *block = culprit(block_in(e, SMALL));
  tslab_free(block);
  memset(block, 0x33, SMALL);
  CHECK(tslab_epoch_reset(e, NULL) == 0);
  const char *others = tslab_epoch_malloc(e, SMALL);
  harm(others == block && others[20] == 0x33);
}

MISUSE("a freed block of an epoch written: it is on no list", MISSED, NULL);
