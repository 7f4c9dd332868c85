#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a unit that is none", TOLD,
       "TSLAB_RESERVE=1G: expected bytes up to 1024M, K or M after it if you like; using the default",
       .environment = "TSLAB_RESERVE=1G");
