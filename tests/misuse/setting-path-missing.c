#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a path that leads nowhere", TOLD, "TSLAB_STATS_AT_EXIT=/nowhere/figures: cannot write there: *",
       .environment = "TSLAB_STATS_AT_EXIT=/nowhere/figures");
