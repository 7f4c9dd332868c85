#include "misuse.h"

static void run(void) {
  check_stale(NEVER_ISSUED);
  check_stale(1);
}

MISUSE("ids that no open has returned: ESTALE", RETURNED, NULL);
