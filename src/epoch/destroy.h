/* destroy: destroy and reset end every block of an epoch, freed or not.                              floor: epoch
 *
 *   epoch_destroy -> lone_ready -> epoch_cache_keep                        an epoch that only this thread was in
 *                 -> destroy_any -> end_tree_below -> look_at_child        at every epoch, before the first one goes
 *                                                  -> end_children         the caller does not hold it
 *                                -> destroy_one    -> destroy_locked -> close_begin, destroy_all, close_tail
 *                                                  -> epoch_retire         the caller does not hold it
 *
 * Under TSLAB_ON_DESTROY=check a destroy is a close that reports the live blocks, and a reset frees nothing. */
#ifndef TSLAB_EPOCH_DESTROY_H
#define TSLAB_EPOCH_DESTROY_H

#include "epoch/epoch.h"

/* The calls of tslab.h. `id` is not 0, and the calling thread has a heap. */
HIDDEN int epoch_destroy(uint64_t id, tslab_epoch_report *out);
HIDDEN int epoch_reset(uint64_t id, tslab_epoch_report *out);

#endif
