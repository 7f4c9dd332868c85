#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_options((tslab_epoch_options){.budget_bytes = 4 * GRANULE});
  CHECK(e != 0);
  errno = 0;
  CHECK(tslab_epoch_malloc(e, 5 * GRANULE) == NULL && errno == ENOMEM);
  CHECK(status_of(e).refused > 0);
  void *outside = tslab_malloc(5 * GRANULE);
  CHECK(outside != NULL);
  tslab_free(outside);
  CHECK(tslab_epoch_close(e, NULL) == 0);
}

MISUSE("more than a budget: ENOMEM in that epoch alone", RETURNED, NULL);
