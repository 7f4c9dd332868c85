#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  char *block = block_in(e, SMALL);
  struct guest guest;
  guest_start(&guest, e, NULL);
  CHECK(tslab_epoch_destroy(e, NULL) == EBUSY);
  CHECK(tslab_epoch_reset(e, NULL) == EBUSY);
  CHECK(block[SMALL - 1] == 0x5C);
  guest_end(&guest);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
}

MISUSE("destroyed and reset with another thread inside: EBUSY, nothing done", RETURNED, NULL);
