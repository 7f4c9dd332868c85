#include "misuse.h"

static void run(void) {
  char out[1024];
  CHECK(tslab_stats((tslab_stats_global *)(void *)out, 100) == EINVAL);
  CHECK(tslab_stats((tslab_stats_global *)(void *)out, 0) == EINVAL);
  CHECK(tslab_stats(NULL, sizeof(tslab_stats_global)) == EINVAL);
  CHECK(tslab_stats_class(1000000, (tslab_class_stats *)(void *)out, sizeof(tslab_class_stats)) == ERANGE);
}

MISUSE("statistics asked for with a wrong size, nowhere to put them, or past the last row: EINVAL, ERANGE", RETURNED,
       NULL);
