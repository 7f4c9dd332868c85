#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("more than may be", TOLD,
       "TSLAB_CACHE=65M: expected bytes up to 64M, with K or M after the number; using the default",
       .environment = "TSLAB_CACHE=65M");
