#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", 0);
  CHECK(tslab_epoch_enter(e) == 0);
  CHECK(tslab_epoch_leave(e) == 0);
  CHECK(tslab_epoch_leave(e) == EINVAL);
}

MISUSE("a scope left twice, and named", TOLD,
       "tslab_epoch_leave of epoch * \"misused\" at 0x* (*+0x*): the thread is in no scope",
       .environment = "TSLAB_ON_SCOPE=report");
