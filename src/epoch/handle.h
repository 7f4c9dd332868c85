/* handle: numbers that stand for blocks and are checked at every use.                                floor: epoch
 *
 *   handle = check 16 | generation 22 | index 26
 *
 * An index leads to a slot; slots come in tables of 32 that belong to one epoch at a time, so that its end can make all
 * its handles stale. A slot's generation goes up whenever its handle ends; a slot that has used up all of them is never
 * used again. The check is a keyed mixture of the rest: it keeps accidents out, not attackers.
 *
 * Threads: a table and its slots under its epoch's lock; which tables are free under a lock of their own. */
#ifndef TSLAB_EPOCH_HANDLE_H
#define TSLAB_EPOCH_HANDLE_H

#include "epoch/epoch.h"

/* A handle for a live block of the epoch in slot `index` (0: epoch 0). 0 without memory. */
HIDDEN tslab_handle handle_make(uint32_t index, void *block);

HIDDEN void *handle_get(tslab_handle handle);

/* The block, which the caller alone may and must free now, and then say handle_freed; NULL when the handle is not valid
 * (any more). The epoch is not destroyed in between. */
HIDDEN void *handle_claim(tslab_handle handle, uint32_t *index);
HIDDEN void handle_freed(uint32_t index);

/* Under the epoch's lock: every handle of it is stale. */
HIDDEN void handle_forget_tables(struct epoch *e);
INLINE void handle_forget_all(struct epoch *e) {
  if (UNLIKELY(atomic_load_explicit(&e->handles, memory_order_relaxed) != 0)) handle_forget_tables(e);
}

/* epoch_lock, when no claimed block of the epoch is about to be freed; epoch_unlock and epoch_release end these. */
HIDDEN void handle_lock_quiet(struct epoch *e);
HIDDEN struct lock *handle_take_quiet(struct epoch *e); /* the same with epoch_take */

/* In a fork child: nobody is in the middle of a free. Or tables that may be half written serve nobody else. */
HIDDEN void handles_after_fork(void);
HIDDEN void handles_freeze(void);

/* Which of the two protects what: handle.c. */
extern HIDDEN struct lock handles_lock, handles_zero_lock;

#endif
