#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  volatile char *block = culprit(block_in(e, SMALL));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  *block = 1;
}

MISUSE("a small block written after a destroy that traps", FAULTS, "use of 0xADDR after destroy of epoch * \"misused\"",
       .environment = "TSLAB_ON_DESTROY=trap");
