#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(LARGE);
  tslab_free(block);
  block = tslab_malloc(SMALL);
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK(stats.free_clean_bytes > 0);
  char *last = block;
  for (int i = 0; i < 1024; i++)
    if (tslab_owns(block + (size_t)i * GRANULE)) last = block + (size_t)i * GRANULE;
  tslab_free(culprit(last));
}

MISUSE("a granule freed that never was in use", NAMED, FOREIGN("free"));
