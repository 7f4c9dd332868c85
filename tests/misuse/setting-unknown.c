#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a setting that is none", TOLD, "unknown setting TSLAB_FOO (see docs/settings.md)",
       .environment = "TSLAB_FOO=1");
