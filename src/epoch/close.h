/* ending: close, destroy and reset.                                                                 floor: epoch
 *
 * A close takes open_id away, then takes every heap that no other thread is inside of: its lists go to its slabs, empty
 * slabs to the reserve and the kernel. Threads inside keep theirs until they leave. What is still live then keeps the
 * epoch closing; the free that brings its last run back ends it. */
#ifndef TSLAB_EPOCH_CLOSE_H
#define TSLAB_EPOCH_CLOSE_H

#include "epoch/epoch.h"

/* The calls of tslab.h; `id` is not 0. The calling thread has been born. */
HIDDEN int epoch_close(uint64_t id, tslab_epoch_report *out);
HIDDEN int epoch_close_step(uint64_t id, uint64_t max_ns, tslab_epoch_report *out);
HIDDEN int epoch_destroy(uint64_t id, tslab_epoch_report *out);
HIDDEN int epoch_reset(uint64_t id, tslab_epoch_report *out);

/* The calling thread is no longer inside, and the epoch is not open as before, or closes by itself. */
HIDDEN void epoch_after_leave(struct epoch *e, uint64_t id);

/* An epoch that is closing, with nothing left, ends. Caller has taken the epoch (epoch_take), and leaves it to this. */
HIDDEN void epoch_finish_if_done(struct epoch *e, struct lock *gate);

/* Gives up every run of the epoch. Nobody is inside, and nothing leads to its slabs any more. `keeper`: NULL, or a heap
 * of the calling thread, which keeps chunks for its next epochs. */
HIDDEN void epoch_take_apart(struct epoch *e, struct heap *keeper);

/* In a fork child: closes that a thread had begun which is not there go on, and epochs that it was about to end end. */
HIDDEN void epochs_close_on(void);

/* After a block of the epoch in that slot was freed.
 *
 *   last free:  own = 0  |  state == CLOSING ?              close:  state = CLOSING  |  own == 0 ?
 *
 * One of the two sees the other, or nobody would end the epoch: so these four are seq_cst. */
HIDDEN COLD void epoch_finish(struct epoch *e);
INLINE void epoch_after_free(uint32_t index) {
  struct epoch *e = epoch_at(index);
  if (UNLIKELY(atomic_load_explicit(&e->state, memory_order_seq_cst) == EPOCH_CLOSING) &&
      atomic_load_explicit(&e->arena.own, memory_order_acquire) == 0)
    epoch_finish(e);
}

#endif
