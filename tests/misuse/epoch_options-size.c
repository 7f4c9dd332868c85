#include "misuse.h"

static void run(void) {
  tslab_epoch_options options = {.struct_size = sizeof options - 8};
  errno = 0;
  CHECK(tslab_epoch_open_with(&options) == 0 && errno == EINVAL);
  options.struct_size = 0;
  errno = 0;
  CHECK(tslab_epoch_open_with(&options) == 0 && errno == EINVAL);
  errno = 0;
  CHECK(tslab_epoch_open_with(NULL) == 0 && errno == EINVAL);
}

MISUSE("options whose struct_size is wrong, or none: EINVAL", RETURNED, NULL);
