#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a setting of the hardened library", TOLD,
       "TSLAB_QUARANTINE does nothing here: only the hardened library has a quarantine (see docs/settings.md)",
       .environment = "TSLAB_QUARANTINE=1M", .hardened = {RETURNED, ""});
