/* spare: an epoch that ended empty, with its part and a chunk, kept by its thread for the next one it opens.   floor: epoch
 *
 * So a request in its own epoch takes no lock but its epoch's and touches the memory that the last one left hot. The chunk
 * counts as reserve. The scavenger ends spares that were not used for a second. */
#ifndef TSLAB_EPOCH_SPARE_H
#define TSLAB_EPOCH_SPARE_H

#include "epoch/scope.h"

/* Under the lock, which this releases when it is true: the epoch, open or closing, whose one part is attached to the thread and
 * empty, becomes its spare. */
HIDDEN bool spare_keep(struct thread *thread, struct epoch *e);

/* An open epoch made of the thread's spare, or NULL. */
HIDDEN struct epoch *spare_open(struct thread *thread, const char *label, uint32_t flags);

HIDDEN void spare_give_up(struct thread *thread); /* from any thread */
HIDDEN void spares_age(bool now);                 /* each tick of the scavenger; all of them, when `now` */

#endif
