#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("no path", TOLD, "TSLAB_STATS_AT_EXIT=: expected the path of a file; using the default",
       .environment = "TSLAB_STATS_AT_EXIT=");
