/* close: close, at once or step by step, and what a close leaves to others.                          floor: epoch
 *
 * A close takes open_id away, then takes every heap that no other thread is inside of: its lists go to its slabs, empty
 * slabs to the reserve and the kernel. Threads inside keep theirs until they leave. What is still live then keeps the
 * epoch closing; the free that brings its last run back ends it (epoch/finish.h).
 *
 *   epoch_close -> lone_ready -> epoch_cache_keep                          an epoch that only this thread was in
 *               -> close_any -> close_locked -> close_begin
 *                            -> carry_out    -> close_children             without the epoch
 *                                            -> close_contents -> close_tail -> epoch_finish_locked
 *                                            -> epoch_retire               without the epoch
 *
 * The verbs take the epoch and release it; what works on it in between returns a verdict. */
#ifndef TSLAB_EPOCH_CLOSE_H
#define TSLAB_EPOCH_CLOSE_H

#include "epoch/epoch.h"

/* The calls of tslab.h; `id` is not 0. The calling thread has been born. */
HIDDEN int epoch_close(uint64_t id, tslab_epoch_report *out);
HIDDEN int epoch_close_step(uint64_t id, uint64_t max_ns, tslab_epoch_report *out);

/* The calling thread is no longer inside, and the epoch is not open as before, or closes by itself. */
HIDDEN void epoch_after_leave(struct epoch *e, uint64_t id);

/* In a fork child: closes that a thread had begun which is not there go on, and epochs that it was about to end end. */
HIDDEN void epochs_close_on(void);

/* The pieces of a close, by the owner of an open epoch. close_begin: it is closing from now on. close_contents: every
 * heap that no other thread is inside of gives up what it holds. close_tail: memory that comes free from now on goes
 * back to the kernel at once; returns true if the epoch has ended, and then the caller releases it and calls
 * epoch_retire. */
HIDDEN void close_begin(struct epoch *e);
HIDDEN void close_contents(struct epoch *e);
HIDDEN bool close_tail(struct epoch *e, tslab_epoch_report *out);

#endif
