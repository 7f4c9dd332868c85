/* close: closes an epoch, at once or step by step; threads inside finish a close.                    floor: epoch
 *
 * A close clears open_id. Then it empties every heap that no other thread is inside: its lists go to its slabs, and
 * empty slabs go to the reserve and the kernel. A thread inside keeps its heap until it leaves. While blocks are live,
 * the epoch stays closing. The free that brings its last run back ends it (epoch/finish.h).
 *
 *   epoch_close -> lone_ready -> epoch_cache_keep                          only this thread was in the epoch
 *               -> close_any -> close_locked -> close_begin
 *                            -> carry_out    -> close_children             all below; the caller does not hold it
 *                                            -> close_contents -> close_tail -> epoch_finish_locked
 *                                            -> epoch_retire               the caller does not hold it
 *
 * The public functions take the epoch and release it; the functions that work on it in between return a verdict. */
#ifndef TSLAB_EPOCH_CLOSE_H
#define TSLAB_EPOCH_CLOSE_H

#include "epoch/epoch.h"

/* The calls of tslab.h. `id` is not 0, and the calling thread has a heap. */
HIDDEN int epoch_close(uint64_t id, tslab_epoch_report *out);
HIDDEN int epoch_close_step(uint64_t id, uint64_t max_ns, tslab_epoch_report *out);

/* Completes a leave: the calling thread is no longer inside, and the epoch has ended meanwhile or closes by itself. */
HIDDEN void epoch_after_leave(struct epoch *e, uint64_t id);

/* For a fork child: completes the closes that threads of the parent had begun, and ends the epochs that they would have
 * ended. */
HIDDEN void epochs_close_on(void);

/* The pieces of a close. The caller owns the epoch, which is open at first. close_begin: it is closing from now on.
 * close_contents: every heap that no other thread is inside gives up its memory. close_tail: memory that becomes free
 * from now on goes to the kernel at once. close_tail returns true if the epoch has ended; then the caller releases the
 * epoch and calls epoch_retire. */
HIDDEN void close_begin(struct epoch *e);
HIDDEN void close_contents(struct epoch *e);
HIDDEN bool close_tail(struct epoch *e, tslab_epoch_report *out);

#endif
