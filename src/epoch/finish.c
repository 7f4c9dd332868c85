/* finish: see finish.h.                                                                              floor: epoch */
#include "epoch/finish.h"

#include "base/options.h"
#include "base/probe.h"
#include "epoch/handle.h"
#include "epoch/inside.h"
#include "epoch/tree.h"

bool epoch_finish_locked(struct epoch *e) {
  /* Reads the threads inside before the bytes owned: the last thread inside may have taken a first chunk before it
   * left. */
  bool done = epoch_state(e) == EPOCH_CLOSING && !e->stepping && !e->descending && inside_threads(e) == 0 &&
              atomic_load_explicit(&e->arena.own, memory_order_seq_cst) == 0 && !epoch_has_children(e);
  if (!done) return false;
  while (e->heaps) attach_drop(e, e->heaps);
  handle_forget_all(e);
  epoch_end(e);
  lock_change_begins(); /* epoch_retire ends it */
  return true;
}

static struct epoch *leave_for_good(struct epoch *e) {
  struct epoch *parent = tree_leave(e);
  if (options.on_destroy != DESTROY_TRAPS) epoch_slot_free(e); /* a trap's message may still need its label */
  return parent;
}

/* Takes the epoch, and ends it if nothing of it is left. Returns true if it has ended. */
static bool ends(struct epoch *e) {
  struct lock *gate = epoch_take(e);
  bool ended = epoch_finish_locked(e);
  if (ended) PROBE2("tslab", "last_free", epoch_id(e), (uintptr_t)e->label);
  epoch_release(e, gate);
  return ended;
}

void epoch_retire(struct epoch *e) {
  do {
    e = leave_for_good(e);
    lock_change_ends();
  } while (e && epoch_may_end(e) && ends(e)); /* the parent may be closing, and this may be its last child */
}

void epoch_finish(struct epoch *e) {
  if (ends(e)) epoch_retire(e);
}

void epochs_after_fork(void) {
  for (uint32_t i = 1; i <= arenas_made(); i++)
    if (epoch_state(epoch_at(i)) == EPOCH_ENDED && epoch_at(i)->arena.parent) leave_for_good(epoch_at(i));
}
