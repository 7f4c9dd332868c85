/* trap: TSLAB_ON_DESTROY=trap makes each use of a destroyed epoch's memory fault.                    floor: epoch
 *
 * The address space is never used again, and each stretch takes a mapping. So this is for finding faults, not for
 * production. */
#ifndef TSLAB_EPOCH_TRAP_H
#define TSLAB_EPOCH_TRAP_H

#include "epoch/epoch.h"

/* Makes the run, which has no owner, fault from now on; a signal handler then names the epoch. Returns false if the
 * kernel refuses. */
HIDDEN bool trap_set(struct run *run);

#endif
