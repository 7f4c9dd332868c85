#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("no word", TOLD, "TSLAB_ON_DESTROY=: expected destroy, check or trap; using destroy",
       .environment = "TSLAB_ON_DESTROY=");
