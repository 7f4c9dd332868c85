#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a word for 0 or 1", TOLD, "TSLAB_SCAVENGER=yes: expected 0 or 1; using 1",
       .environment = "TSLAB_SCAVENGER=yes");
