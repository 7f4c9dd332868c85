/* destroy: destroy and reset: every block of an epoch ends, whether it was freed or not.             floor: epoch
 *
 *   epoch_destroy -> lone_ready -> epoch_cache_keep                        an epoch that only this thread was in
 *                 -> destroy_any -> look_at_tree                           before the first one goes
 *                                -> end_children                           without the epoch
 *                                -> destroy_locked -> close_begin, destroy_all, close_tail
 *                                -> epoch_retire                           without the epoch
 *
 * Under TSLAB_ON_DESTROY=check a destroy is a close that names what survives, and a reset frees nothing. */
#ifndef TSLAB_EPOCH_DESTROY_H
#define TSLAB_EPOCH_DESTROY_H

#include "epoch/epoch.h"

/* The calls of tslab.h; `id` is not 0. The calling thread has been born. */
HIDDEN int epoch_destroy(uint64_t id, tslab_epoch_report *out);
HIDDEN int epoch_reset(uint64_t id, tslab_epoch_report *out);

#endif
