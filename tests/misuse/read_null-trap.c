#include "misuse.h"

static char *volatile nowhere;

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  block_in(e, SMALL);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  dprintf(1, "%d\n", *nowhere);
}

MISUSE("a fault that is none of ours, under the trap", CRASHES, NULL, .environment = "TSLAB_ON_DESTROY=trap");
