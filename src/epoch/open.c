/* open: see open.h.                                                                                  floor: epoch */
#include "epoch/open.h"

#include "epoch/close.h"
#include "epoch/tree.h"
#include <errno.h>

/* Makes the epoch a child. Caller holds tree_lock. A thread that closes the parent, or keeps it as a cached epoch,
 * locks or owns it. So it sees the child, or this sees the close. EBUSY: the parent is open and has an owner, and no
 * thread waits for an owner under tree_lock. */
static int join(struct epoch *e, uint64_t parent_id) {
  struct epoch *parent = epoch_slot(parent_id);
  if (!parent) return ESTALE;
  lock_take(epoch_lock_of(parent));
  int error = epoch_error(parent, parent_id);
  unsigned depth = 1;
  for (const struct arena *l = parent->arena.parent; l; l = l->parent) depth++;
  if (error == 0 && epoch_is_owned(parent)) error = EBUSY;
  if (error == 0 && depth > EPOCH_DEPTH) error = EOVERFLOW;
  if (error == 0) tree_join(e, parent);
  lock_release(epoch_lock_of(parent));
  return error;
}

/* Opens the epoch and makes it a child. A walk over the tree sees both as one step, and another thread finds the epoch
 * whole. Returns an error, or 0 and the id. */
static int try_to_begin(struct epoch *e, const tslab_epoch_options *wanted, uint64_t *id) {
  if (wanted->parent) lock_take(&tree_lock);
  int error = wanted->parent ? join(e, wanted->parent) : 0;
  if (error == 0) {
    epoch_lock(e);
    *id = epoch_begin(e, wanted->label, wanted->flags);
    if (wanted->prefault_bytes) e->arena.first_of_label = false; /* the program will use this much at once */
    if (!epoch_is_plain(e) || wanted->prefault_bytes) e->arena.by_slabs = false; /* it could not keep them */
    epoch_unlock(e);
  }
  if (wanted->parent) lock_release(&tree_lock);
  return error;
}

static int begin(struct epoch *e, const tslab_epoch_options *wanted, uint64_t *id) {
  int error;
  while ((error = try_to_begin(e, wanted, id)) == EBUSY) {
    const struct epoch *parent = epoch_slot(wanted->parent);
    epoch_lock(parent);
    epoch_unlock(parent);
  }
  return error;
}

/* Gets the memory of the first chunks. Without memory it ends the epoch and returns false. */
static bool prepare(struct epoch *e, uint64_t id, size_t bytes) {
  struct lock *gate = epoch_own(e);
  /* Meanwhile a close or destroy of its parent may have ended the epoch. Then the slot is free or serves another
   * epoch. */
  bool done = epoch_error(e, id) != 0 || arena_prepare(&e->arena, bytes);
  epoch_release(e, gate);
  return done;
}

uint64_t epoch_open(const tslab_epoch_options *wanted, int *error) {
  struct epoch *e = epoch_slot_take();
  uint64_t id = 0;
  *error = ENOMEM;
  if (!e) return 0;
  struct arena *arena = &e->arena;
  arena->budget = wanted->budget_bytes ? wanted->budget_bytes : SIZE_MAX;
  atomic_store_explicit(&arena->refused, 0, memory_order_relaxed);
  atomic_store_explicit(&arena->spilled, 0, memory_order_relaxed);
  *error = begin(e, wanted, &id);
  if (*error != 0) {
    epoch_slot_free(e);
    return 0;
  }
  if (wanted->prefault_bytes == 0 || prepare(e, id, wanted->prefault_bytes)) return id;
  epoch_close(id, NULL); /* a thread that found it by tslab_epoch_each may have a block there */
  *error = ENOMEM;
  return 0;
}
