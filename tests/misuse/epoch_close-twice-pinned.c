#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  tslab_epoch_report report;
  void *pins = block_in(e, SMALL);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  CHECK(tslab_epoch_close(e, &report) == ESHUTDOWN && report.live_blocks == 1);
  CHECK(tslab_epoch_close_step(e, 1000, NULL) == ESHUTDOWN);
  CHECK(tslab_epoch_destroy(e, NULL) == ESHUTDOWN);
  tslab_free(pins);
}

MISUSE("closed twice, a block living on: ESHUTDOWN, and the report says what is left", RETURNED, NULL);
