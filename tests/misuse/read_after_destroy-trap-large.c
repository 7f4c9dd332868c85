#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  volatile char *block = culprit((char *)block_in(e, LARGE) + LARGE / 2);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  dprintf(1, "%d\n", *block);
}

MISUSE("a large block read after a destroy that traps", FAULTS, "use of 0xADDR after destroy of epoch * \"misused\"",
       .environment = "TSLAB_ON_DESTROY=trap");
