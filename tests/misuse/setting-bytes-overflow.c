#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a number that no register holds", TOLD,
       "TSLAB_RESERVE=99999999999999999999: expected bytes up to 1024M, K or M after it if you like; using the default",
       .environment = "TSLAB_RESERVE=99999999999999999999");
