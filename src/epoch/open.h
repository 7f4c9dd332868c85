/* open: opens a new epoch.                                                                           floor: epoch */
#ifndef TSLAB_EPOCH_OPEN_H
#define TSLAB_EPOCH_OPEN_H

#include "epoch/epoch.h"

/* Returns the id of a new epoch without heaps, or 0 and *error. The caller has checked `wanted`, except its parent. */
HIDDEN uint64_t epoch_open(const tslab_epoch_options *wanted, int *error);

#endif
