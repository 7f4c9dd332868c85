/* status: says what an epoch holds, and stops no thread.                                             floor: epoch */
#ifndef TSLAB_EPOCH_STATUS_H
#define TSLAB_EPOCH_STATUS_H

#include "epoch/epoch.h"

/* Caller holds the epoch's lock, or owns the epoch. */
HIDDEN void status_of(struct epoch *e, tslab_epoch_status *out);

/* Returns 0, or ESTALE if the id names no epoch. Caller holds no lock. */
HIDDEN int status_read(uint64_t id, tslab_epoch_status *out);

/* Calls `visit`, under the arena's lock, for each live block of an epoch. No thread is inside, and the blocks of all
 * lists are in their slabs. Caller holds the epoch's lock, or owns the epoch. */
HIDDEN void status_each_survivor(struct epoch *e, void (*visit)(void *block, size_t size, void *arg), void *arg);

#endif
