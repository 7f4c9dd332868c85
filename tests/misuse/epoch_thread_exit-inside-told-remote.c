#include "misuse.h"

static void *stays(void *e) {
  CHECK(tslab_epoch_enter(*(tslab_epoch *)e) == 0);
  CHECK(tslab_malloc(SMALL) != NULL);
  return e;
}

static void run(void) {
  tslab_epoch e = open_epoch("misused", 0);
  elsewhere(stays, &e);
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.scope_misuses, ==, 1);
}

MISUSE("a thread ends inside a scope, and the epoch is named", TOLD,
       "a thread ended inside epoch * \"misused\", 1 scopes deep; is a leave missing?",
       .environment = "TSLAB_ON_SCOPE=report");
