#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", 0), inner = open_epoch("inner", 0);
  CHECK(tslab_epoch_enter(e) == 0 && tslab_epoch_enter(inner) == 0);
  for (int i = 0; i < 3; i++) CHECK(tslab_epoch_leave(e) == EINVAL);
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.scope_misuses, ==, 3);
}

MISUSE("the outer scope left first, three times at one place: named once, and counted three times", TOLD,
       "tslab_epoch_leave of epoch * \"misused\" at 0x* (*+0x*): the innermost scope is of epoch * \"inner\"; is its "
       "leave missing?",
       .environment = "TSLAB_ON_SCOPE=report");
