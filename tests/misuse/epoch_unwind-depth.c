#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_enter(e) == 0);
  tslab_scope_unwind(2);
  CHECK(tslab_scope_depth() == 1);
  tslab_scope_unwind(-1);
  CHECK(tslab_scope_depth() == 1);
  tslab_scope_unwind(0);
  tslab_scope_unwind(0);
  CHECK(tslab_scope_depth() == 0 && tslab_epoch_current() == 0);
  CHECK(tslab_epoch_leave(e) == EINVAL);
}

MISUSE("unwound to depths that are not there: nothing happens", RETURNED, NULL);
