/* trap: TSLAB_ON_DESTROY=trap, memory of destroyed epochs that faults when it is used.               floor: epoch
 *
 * Its address space is never used again, and each stretch costs a mapping: for finding faults, not for serving. */
#ifndef TSLAB_EPOCH_TRAP_H
#define TSLAB_EPOCH_TRAP_H

#include "epoch/epoch.h"

/* The run, which leads nowhere, faults from now on, and a handler names the epoch. False where the kernel refuses. */
HIDDEN bool trap_set(struct run *run);

#endif
