#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  CHECK(tslab_epoch_enter(e) == ESTALE);
  CHECK(tslab_epoch_calloc(e, 1, SMALL) == NULL && errno == ESTALE);
  CHECK(tslab_epoch_aligned_alloc(e, 64, SMALL) == NULL && errno == ESTALE);
  CHECK(tslab_epoch_close(e, NULL) == ESTALE);
  CHECK(tslab_epoch_destroy(e, NULL) == ESTALE);
  CHECK(tslab_epoch_reset(e, NULL) == ESTALE);
}

#define ENDED_LINE(call) call " of epoch * at 0x* (*+0x*): it has ended, or never was"

MISUSE("an epoch that has ended entered, allocated in and ended, and named", TOLD,
       ENDED_LINE("tslab_epoch_enter") "\n" ENDED_LINE("tslab_epoch_calloc") "\n"
       ENDED_LINE("tslab_epoch_aligned_alloc") "\n" ENDED_LINE("tslab_epoch_close") "\n"
       ENDED_LINE("tslab_epoch_destroy") "\n" ENDED_LINE("tslab_epoch_reset"),
       .environment = "TSLAB_ON_SCOPE=report");
