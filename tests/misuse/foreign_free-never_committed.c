#include "misuse.h"

static void run(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  tslab_free(culprit((char *)tslab_malloc(LARGE) + stats.committed_bytes + GRANULE));
}

MISUSE("address space freed that never was memory", NAMED, FOREIGN("free"));
