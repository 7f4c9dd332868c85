/* finish: the end of an epoch that is closing and holds nothing more.                                floor: epoch
 *
 * Threads: the thread that takes the last thing away ends it: a free, a leave, a child's end, or the close itself. */
#ifndef TSLAB_EPOCH_FINISH_H
#define TSLAB_EPOCH_FINISH_H

#include "epoch/epoch.h"

/* Ends an epoch that is closing, with nothing left. By the owner. Returns true if it has ended: then the caller
 * releases it, and calls epoch_retire. */
HIDDEN bool epoch_finish_locked(struct epoch *e);

/* Gives back the slot of an ended epoch and its place in the tree, which ends a parent that waited for this child.
 * Caller holds no lock; nobody else finds an ended epoch but as somebody's child. */
HIDDEN void epoch_retire(struct epoch *e);

/* Both for an epoch of which the caller has taken nothing. */
HIDDEN COLD void epoch_finish(struct epoch *e);

/* After a block of the epoch in that slot was freed.
 *
 *   last free:  own = 0  |  state == CLOSING ?              close:  state = CLOSING  |  own == 0 ?
 *
 * One of the two sees the other, or nobody would end the epoch: so these four are seq_cst. */
INLINE void epoch_after_free(uint32_t index) {
  struct epoch *e = epoch_at(index);
  if (UNLIKELY(atomic_load_explicit(&e->state, memory_order_seq_cst) == EPOCH_CLOSING) &&
      atomic_load_explicit(&e->arena.own, memory_order_acquire) == 0)
    epoch_finish(e);
}

/* In a fork child: epochs that a thread had ended which is not there leave their parents. */
HIDDEN void epochs_after_fork(void);

#endif
