#include "misuse.h"

static void *reads(void *block) {
  dprintf(1, "%d\n", *(volatile char *)block);
  return block;
}

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  elsewhere(reads, block);
}

MISUSE("a small block read by another thread after a destroy that traps", FAULTS,
       "use of 0xADDR after destroy of epoch * \"misused\"",
       .environment = "TSLAB_ON_DESTROY=trap");
