/* spare: an epoch that ended empty, kept by its thread for the next one that it opens.                floor: epoch
 *
 * So a request in its own epoch takes no lock but its epoch's and touches the memory that the last one left hot. Its
 * chunk counts as reserve. The scavenger ends spares that were not used for a second. */
#ifndef TSLAB_EPOCH_SPARE_H
#define TSLAB_EPOCH_SPARE_H

#include "epoch/scope.h"

/* Under the lock: whether the epoch, whose one part is attached to the thread, could become its spare; and making it so
 * once it is empty, which releases the lock. */
HIDDEN bool spare_may_keep(const struct thread *thread, const struct epoch *e);
HIDDEN void spare_keep(struct thread *thread, struct epoch *e);

/* The id of an open epoch made of the thread's spare, or 0. */
HIDDEN uint64_t spare_open(struct thread *thread, const char *label, uint32_t flags);

HIDDEN void spare_give_up(struct thread *thread); /* from any thread */
HIDDEN void spares_age(bool now);                 /* each tick of the scavenger; all of them, when `now` */

#endif
