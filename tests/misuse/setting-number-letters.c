#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("letters for a number", TOLD,
       "TSLAB_SAMPLE_CPU=often: expected a number up to 1M, 0 for never; using the default",
       .environment = "TSLAB_SAMPLE_CPU=often");
