/* handle: numbers that stand for blocks; the library checks them at every use.                       floor: epoch
 *
 *   handle = check 16 | generation 22 | index 26
 *
 * An index leads to a slot. Slots come in tables of 32 that belong to one epoch at a time, so that the epoch's end can
 * make all its handles stale. Each new handle of a slot has a higher generation. A slot that has used up all
 * generations is never used again. The check is a keyed mixture of the rest: it keeps out accidents, not attackers.
 *
 * Threads: the epoch's lock protects its tables and their slots; handles_lock protects the list of free tables. */
#ifndef TSLAB_EPOCH_HANDLE_H
#define TSLAB_EPOCH_HANDLE_H

#include "epoch/epoch.h"

/* Returns a handle for a live block of the epoch in slot `index` (0: epoch 0), or 0 without memory. */
HIDDEN tslab_handle handle_make(uint32_t index, void *block);

HIDDEN void *handle_get(tslab_handle handle);

/* handle_claim ends the handle and returns its block, or NULL if the handle is not valid. Only the caller may free the
 * block; it must do so and then call handle_freed. No thread destroys the epoch in between. */
HIDDEN void *handle_claim(tslab_handle handle, uint32_t *index);
HIDDEN void handle_freed(uint32_t index);

/* Makes every handle of the epoch stale. Caller holds the epoch's lock. */
HIDDEN void handle_forget_tables(struct epoch *e);
INLINE void handle_forget_all(struct epoch *e) {
  if (UNLIKELY(atomic_load_explicit(&e->handles, memory_order_relaxed) != 0)) handle_forget_tables(e);
}

/* As epoch_lock and epoch_take, but wait until no thread is about to free a claimed block of the epoch. epoch_unlock
 * and epoch_release end these. */
HIDDEN struct lock *handle_take_quiet(struct epoch *e);
INLINE bool handle_is_quiet(const struct epoch *e) {
  return atomic_load_explicit(&e->freeing, memory_order_acquire) == 0;
}
INLINE void handle_lock_quiet(struct epoch *e) {
  for (;;) {
    epoch_lock(e);
    if (LIKELY(handle_is_quiet(e))) return;
    epoch_unlock(e);
    os_rest();
  }
}

/* For a fork child: handles_after_fork forgets frees of other threads that were under way; handles_freeze also stops
 * the use of tables that may be half written. */
HIDDEN void handles_after_fork(void);
HIDDEN void handles_freeze(void);

/* handle.c says what each of these protects. */
extern HIDDEN struct lock handles_lock, handles_zero_lock;

#endif
