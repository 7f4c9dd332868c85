#include "misuse.h"

static void *stays(void *e) {
  CHECK(tslab_epoch_enter(*(tslab_epoch *)e) == 0);
  CHECK(tslab_malloc(SMALL) != NULL);
  return e;
}

static void run(void) {
  tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  elsewhere(stays, &e);
  CHECK(status_of(e).threads_inside == 0);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
}

MISUSE("a thread ends inside its scopes: it leaves them", RETURNED, NULL);
