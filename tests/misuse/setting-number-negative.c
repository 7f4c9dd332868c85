#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a negative number", TOLD, "TSLAB_SAMPLE=-1: expected a number up to 1M, 0 for no samples; using the default",
       .environment = "TSLAB_SAMPLE=-1");
