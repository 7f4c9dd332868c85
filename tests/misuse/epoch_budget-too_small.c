#include "misuse.h"

static void run(void) {
  errno = 0;
  CHECK(open_options((tslab_epoch_options){.budget_bytes = 1000}) == 0 && errno == EINVAL);
}

MISUSE("a budget below 64 KiB: EINVAL", RETURNED, NULL);
