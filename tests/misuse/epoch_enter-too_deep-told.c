#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", 0);
  for (int i = 0; i < TSLAB_SCOPES; i++) CHECK(tslab_epoch_enter(e) == 0);
  CHECK(tslab_epoch_enter(e) == EOVERFLOW);
}

MISUSE("a 65th scope, and named", TOLD,
       "tslab_epoch_enter of epoch * \"misused\" at 0x* (*+0x*): the "
       "thread is in 64 scopes already; is a leave missing?",
       .environment = "TSLAB_ON_SCOPE=report");
