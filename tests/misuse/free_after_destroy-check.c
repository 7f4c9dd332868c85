#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, SMALL));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  tslab_free(block);
}

MISUSE("freed after a destroy that keeps and lists what is left", TOLD,
       "epoch * \"misused\": 1 blocks (96 bytes) outlive destroy; kept, because TSLAB_ON_DESTROY=check\n"
       "  0xADDR, 96 bytes",
       .environment = "TSLAB_ON_DESTROY=check");
