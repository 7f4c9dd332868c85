#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  const char *block = culprit(block_in(e, SMALL));
  CHECK(tslab_epoch_close(e, NULL) == 0);
  CHECK(block[SMALL - 1] == 0x5C);
  tslab_free((void *)(uintptr_t)block);
  check_stale(e);
}

MISUSE("used after a close that traps nothing, for it is no misuse", RETURNED, NULL,
       .environment = "TSLAB_ON_DESTROY=trap");
