/* teardown: gives up every run of an epoch without a look at its blocks.                             floor: epoch */
#ifndef TSLAB_EPOCH_TEARDOWN_H
#define TSLAB_EPOCH_TEARDOWN_H

#include "epoch/epoch.h"

/* Gives up every run except `but`, which may be NULL. No thread is inside, and no list leads to the slabs any more.
 * `keeper` is NULL, or a heap of the calling thread that keeps chunks for the thread's next epochs. The caller counts
 * the recycled and returned bytes. */
HIDDEN struct returning teardown_all_but(struct epoch *e, const struct run *but, struct heap *keeper);

/* Gives up every run, and counts the recycled and returned bytes for the epoch. */
HIDDEN void teardown_all(struct epoch *e, struct heap *keeper);

#endif
