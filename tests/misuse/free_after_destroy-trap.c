#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  tslab_free(block);
}

MISUSE("freed after a destroy that traps", NAMED, "free of 0xADDR (block of destroyed epoch *)",
       .environment = "TSLAB_ON_DESTROY=trap");
