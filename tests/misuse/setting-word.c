#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a word that is none of those", TOLD, "TSLAB_ON_MISUSE=bogus: expected abort or report; using abort",
       .environment = "TSLAB_ON_MISUSE=bogus");
