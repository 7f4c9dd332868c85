#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  for (int i = 0; i < TSLAB_SCOPES; i++) CHECK(tslab_epoch_enter(e) == 0);
  CHECK(tslab_epoch_enter(e) == EOVERFLOW);
  CHECK(tslab_scope_depth() == TSLAB_SCOPES);
  tslab_scope_unwind(0);
  CHECK(tslab_epoch_current() == 0);
}

MISUSE("a 65th scope: EOVERFLOW", RETURNED, NULL);
