#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a unit that is none", TOLD,
       "TSLAB_RESERVE=1T: expected bytes up to 1G, with K, M or G after the number; using the default",
       .environment = "TSLAB_RESERVE=1T");
