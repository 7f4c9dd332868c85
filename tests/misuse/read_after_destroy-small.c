#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  volatile char *block = culprit(block_in(e, SMALL));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  dprintf(1, "%d\n", *block);
  harm(true);
}

MISUSE("a small block read after its epoch was destroyed", MISSED, NULL);
