#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a number that no register holds", TOLD,
       "TSLAB_RESERVE=99999999999999999999: "
       "expected bytes up to 1G, with K, M or G after the number; using the default",
       .environment = "TSLAB_RESERVE=99999999999999999999");
