#include "misuse.h"

static void run(void) {
  errno = 0;
  CHECK(open_options((tslab_epoch_options){.flags = 1u << 31}) == 0 && errno == EINVAL);
}

MISUSE("a flag that is none: EINVAL", RETURNED, NULL);
