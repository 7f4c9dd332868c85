#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  char *block = culprit(sampled_in(e, SMALL));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  tslab_free(block);
}

MISUSE("a sampled small block freed after its epoch was destroyed", NAMED, ENDED("free") SAMPLED_LAST, SAMPLED_BY);
