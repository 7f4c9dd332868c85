/* status: what an epoch holds, asked without stopping anybody.                                       floor: epoch */
#ifndef TSLAB_EPOCH_STATUS_H
#define TSLAB_EPOCH_STATUS_H

#include "epoch/epoch.h"

/* Caller holds the epoch's lock, or owns it. */
HIDDEN void status_of(struct epoch *e, tslab_epoch_status *out);

/* The same for the epoch with this id. Caller holds no lock. ESTALE when it names none. */
HIDDEN int status_read(uint64_t id, tslab_epoch_status *out);

/* Calls `visit` for each live block of an epoch inside which nobody is and whose lists are in its slabs. Caller
 * holds the epoch's lock, or owns it; `visit` is called under the arena's lock. */
HIDDEN void status_each_survivor(struct epoch *e, void (*visit)(void *block, size_t size, void *arg), void *arg);

#endif
