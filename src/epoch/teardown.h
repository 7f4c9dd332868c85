/* teardown: every run of an epoch given up, without a look at its blocks.                            floor: epoch */
#ifndef TSLAB_EPOCH_TEARDOWN_H
#define TSLAB_EPOCH_TEARDOWN_H

#include "epoch/epoch.h"

/* Gives up every run but `but`, which may be NULL. Nobody is inside, and nothing leads to its slabs any more. `keeper`:
 * NULL, or a heap of the calling thread, which keeps chunks for its next epochs. The caller counts what was recycled
 * and returned. */
HIDDEN struct returning teardown_all_but(struct epoch *e, const struct run *but, struct heap *keeper);

/* Gives up every run, and counts for the epoch what was recycled and returned. */
HIDDEN void teardown_all(struct epoch *e, struct heap *keeper);

#endif
