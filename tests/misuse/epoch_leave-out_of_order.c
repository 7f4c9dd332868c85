#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch inner = open_epoch("inner", 0);
  CHECK(tslab_epoch_enter(e) == 0 && tslab_epoch_enter(inner) == 0);
  CHECK(tslab_epoch_leave(e) == EINVAL);
  CHECK(tslab_epoch_current() == inner && tslab_scope_depth() == 2);
  CHECK(tslab_epoch_leave(inner) == 0 && tslab_epoch_leave(e) == 0);
}

MISUSE("the outer scope left first: EINVAL, nothing happens", RETURNED, NULL);
