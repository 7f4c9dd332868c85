#include "misuse.h"

static void *enters(void *e) {
  check_stale(*(tslab_epoch *)e);
  return e;
}

static void run(void) {
  tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  elsewhere(enters, &e);
}

MISUSE("an epoch that has ended entered, closed, allocated in by another thread: ESTALE", RETURNED, NULL);
