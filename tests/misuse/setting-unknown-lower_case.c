#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a setting in lower case", TOLD,
       "unknown setting TSLAB_on_misuse: did you mean TSLAB_ON_MISUSE? (see docs/settings.md)",
       .environment = "TSLAB_on_misuse=report");
