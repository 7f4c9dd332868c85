/* finish: ends a closing epoch that holds nothing any more.                                          floor: epoch
 *
 * Threads: the thread that takes the last thing away ends the epoch, by a free, a leave, a child's end, or the close
 * itself. */
#ifndef TSLAB_EPOCH_FINISH_H
#define TSLAB_EPOCH_FINISH_H

#include "epoch/epoch.h"

/* Ends the epoch if it is closing and nothing of it is left. Caller owns the epoch. Returns true if it has ended; then
 * the caller releases it and calls epoch_retire. */
HIDDEN bool epoch_finish_locked(struct epoch *e);

/* Gives back the slot of an ended epoch and its place in the tree. Then does the same to each parent that this ends,
 * because it waited for its last child. Caller holds no lock; other threads find an ended epoch only as a child of its
 * parent. */
HIDDEN void epoch_retire(struct epoch *e);

/* Takes the epoch, ends it if nothing of it is left, and retires it. Caller holds no lock. */
HIDDEN COLD void epoch_finish(struct epoch *e);

/* Called after a free of a block of the epoch, or the end of its child. Returns true if this may have been the last.
 *
 *   last free:  own = 0  |  state == CLOSING ?              close:  state = CLOSING  |  own == 0 ?
 *
 * These four accesses are seq_cst, so that one of the two sides sees the other. Otherwise no thread would end the
 * epoch. */
INLINE bool epoch_may_end(const struct epoch *e) {
  return UNLIKELY(atomic_load_explicit(&e->state, memory_order_seq_cst) == EPOCH_CLOSING) &&
         atomic_load_explicit(&e->arena.own, memory_order_acquire) == 0;
}

/* Called after a free of a block of the epoch in that slot. */
INLINE void epoch_after_free(uint32_t index) {
  if (epoch_may_end(epoch_at(index))) epoch_finish(epoch_at(index));
}

/* For a fork child: takes epochs that threads of the parent had ended out of the tree. */
HIDDEN void epochs_after_fork(void);

#endif
