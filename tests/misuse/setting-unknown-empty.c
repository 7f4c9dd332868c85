#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a setting without a name", TOLD, "unknown setting TSLAB_ (see docs/settings.md)", .environment = "TSLAB_=1");
