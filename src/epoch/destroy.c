/* destroy: see destroy.h.                                                                            floor: epoch */
#include "epoch/destroy.h"

#include "base/log.h"
#include "base/options.h"
#include "epoch/close.h"
#include "epoch/finish.h"
#include "epoch/lone.h"
#include "epoch/report.h"
#include "epoch/status.h"
#include "epoch/teardown.h"
#include "epoch/tree.h"
#include "heap/bump.h"
#include "heap/flush.h"
#include "heap/guard.h"
#include "heap/label.h"
#include "heap/profile.h"
#include "heap/teardown.h"
#include <errno.h>

/* ---- the pieces -------------------------------------------------------------------------------------------------- */

/* Gives up all chunks and large blocks of a lone heap, except the chunk in which it goes on. Caller owns the epoch;
 * only the heap's thread may be inside. */
static void shed(struct epoch *e) {
  struct heap *heap = e->heaps;
  if (!heap || heap->next_of_epoch || !attach_is_mine(heap) || options.on_destroy != DESTROY_DESTROYS) return;
  if (!heap->bump.chunk || heap_has_slabs(heap) || epoch_own_bytes(e) == run_bytes(heap->bump.chunk)) return;
  handle_forget_all(e);
  struct returning others = teardown_all_but(e, heap->bump.chunk, heap);
  STORE_RACING(e->recycled_here, e->recycled_here + others.recycled);
  if (others.returned) shared_add(&labels[e->arena.label].returned, others.returned);
}

static void destroy_all(struct epoch *e) {
  struct heap *mine = NULL;
  handle_forget_all(e); /* now, because a closing child may keep the epoch */
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) {
    if (attach_is_mine(p)) mine = p;
    heap_forget(p, false);
    bump_leave(p, false);
    bump_start(p);
  }
  teardown_all(e, mine);
  arena_drop_ready(&e->arena);
  arena_return_spilled(&e->arena, SIZE_MAX);
}

/* Returns true if no thread is inside, except the caller if it may be. No thread enters until open_id is set again. */
static bool clear_of_threads(struct epoch *e, bool caller_may_be_inside) {
  bool alone = e->heaps && !e->heaps->next_of_epoch && attach_is_mine(e->heaps);
  if (!alone) inside_shut(e);
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch)
    if (inside_is_busy(p) && !(caller_may_be_inside && attach_is_mine(p))) return false;
  return true;
}

static void reopen(struct epoch *e, uint64_t id) { atomic_store_explicit(&e->open_id, id, memory_order_release); }

/* ---- TSLAB_ON_DESTROY=check -------------------------------------------------------------------------------------- */

#define SURVIVORS_SHOWN 8

struct survivors {
  unsigned count;
  struct {
    void *block;
    size_t size;
  } shown[SURVIVORS_SHOWN];
};

/* Called under the arena's lock, so it writes no message. */
static void note_survivor(void *block, size_t size, void *noted) {
  struct survivors *survivors = noted;
  if (survivors->count == SURVIVORS_SHOWN) return;
  survivors->shown[survivors->count].block = block;
  survivors->shown[survivors->count++].size = size;
}

/* TSLAB_ON_DESTROY=check: reports the live blocks that a destroy would have ended. Caller owns the epoch. */
static void tell_survivors(struct epoch *e, const char *call) {
  tslab_epoch_status status;
  struct survivors survivors = {.count = 0};
  char places[400];
  status_of(e, &status);
  if (status.live_blocks == 0) return;
  log_line("epoch %zu \"%s\": %zu blocks (%zu bytes) outlive %s; kept, because TSLAB_ON_DESTROY=check",
           (size_t)status.epoch, e->label, (size_t)status.live_blocks, (size_t)status.live_bytes, call);
  status_each_survivor(e, note_survivor, &survivors);
  for (unsigned i = 0; i < survivors.count; i++) {
    void *block = survivors.shown[i].block;
    bool is_known = profile_places_of(block, places, sizeof places);
    log_line("  %p, %zu bytes%s%s", guard_in_front(block), survivors.shown[i].size, is_known ? ", allocated at " : "",
             is_known ? places : "");
  }
}

/* ---- one epoch --------------------------------------------------------------------------------------------------- */

/* Returns 0 if only threads that may be are inside, and no other can enter; otherwise an error, and nothing has
 * changed. Caller owns the epoch. */
static int clear(struct epoch *e, uint64_t id, bool reset) {
  int error = epoch_destroyable(e, id);
  if (error != 0 || clear_of_threads(e, reset)) return error;
  reopen(e, id);
  return EBUSY;
}

/* Returns true if the epoch has ended. Caller owns the epoch. */
static bool destroy_locked(struct epoch *e, tslab_epoch_report *out) {
  struct chunk_live given_up = {0, 0};
  size_t own = epoch_own_bytes(e);
  epoch_learn(e, false);
  if (options.on_destroy == DESTROY_CHECKS) {
    close_begin(e);
    close_contents(e);
    tell_survivors(e, "destroy");
    report_live(out, e);
    return close_tail(e, out);
  }
  if (!out) shed(e);
  if (lone_ends_in_cache(e, out ? &given_up : NULL, false)) {
    report_given_up(out, given_up);
    if (out) out->bytes_recycled = own;
    return false;
  }
  report_live(out, e);
  close_begin(e);
  destroy_all(e);
  return close_tail(e, out);
}

/* Ends an epoch whose children have ended. */
static int destroy_one(struct epoch *e, uint64_t id, tslab_epoch_report *out) {
  struct lock *gate = handle_take_quiet(e);
  int error = clear(e, id, false);
  bool ended = error == 0 && destroy_locked(e, out);
  epoch_release(e, gate);
  if (ended) epoch_retire(e);
  return error;
}

INLINE void begin_era(struct epoch *e) {
  e->era++;
  e->arena.first_of_label = false;
  atomic_store_explicit(&e->arena.bumped, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.freed, 0, memory_order_relaxed);
}

/* Does the same as lone_ends_in_cache, but the epoch stays open, and its thread may be inside. */
static bool rewinds(struct epoch *e, struct chunk_live *given_up) {
  if (!given_up) shed(e);
  struct heap *heap = lone_heap(e);
  if (!heap || heap_has_slabs(heap)) return false;
  lone_empty(e, heap, given_up);
  heap->bump.off = false;
  return true;
}

static void reset_locked(struct epoch *e, tslab_epoch_report *out) {
  struct chunk_live given_up = {0, 0};
  epoch_learn(e, false);
  if (options.on_destroy == DESTROY_CHECKS) {
    for (struct heap *p = e->heaps; p; p = p->next_of_epoch) {
      heap_rest(p);
      heap_flush_magazines(p, SIZE_MAX);
    }
    tell_survivors(e, "reset");
    report_live(out, e);
  } else if (rewinds(e, out ? &given_up : NULL)) {
    report_given_up(out, given_up);
    if (out) out->threads_inside = inside_threads(e);
  } else {
    report_live(out, e);
    atomic_store_explicit(&e->arena.recycled, 0, memory_order_relaxed);
    atomic_store_explicit(&e->arena.returned, 0, memory_order_relaxed);
    destroy_all(e);
    report_bytes(out, e);
    epoch_count_bytes(e);
  }
  begin_era(e);
}

static int reset_one(struct epoch *e, uint64_t id, tslab_epoch_report *out) {
  struct lock *gate = handle_take_quiet(e);
  int error = clear(e, id, true);
  if (error == 0) {
    reset_locked(e, out);
    reopen(e, id);
  }
  epoch_release(e, gate);
  return error;
}

/* ---- the tree below ---------------------------------------------------------------------------------------------- */

/* The argument for each epoch below the root. */
struct below {
  bool reset; /* a reset, during which the caller may be inside */
  bool again;
  uint32_t mark; /* of the next walk */
};

/* Returns 0, or the error that already tells that the epoch with that id cannot be destroyed. */
static int look_at_one(uint64_t id, bool is_root, bool caller_may_be_inside) {
  struct epoch *e = epoch_slot(id);
  struct lock *gate = epoch_take(e);
  int error = 0;
  if (epoch_id(e) == id) {
    for (struct heap *p = e->heaps; p; p = p->next_of_epoch)
      if (inside_is_busy(p) && !(caller_may_be_inside && attach_is_mine(p))) error = EBUSY;
    if (!is_root && !(e->flags & TSLAB_EPOCH_DESTROYABLE)) error = EPERM;
  }
  epoch_release(e, gate);
  return error;
}

static int look_at_child(uint64_t id, void *below) { return look_at_one(id, false, ((struct below *)below)->reset); }

static uint32_t new_mark(void) {
  static _Atomic uint32_t marks;
  return atomic_fetch_add_explicit(&marks, 1, memory_order_relaxed) + 1;
}

static int found_one(uint64_t id, void *unused) {
  (void)unused;
  return id != 0;
}

/* Ends an epoch of the tree. A destroy leaves it to the next walk if it has an open child, which was opened meanwhile.
 * So a child that cannot be destroyed does not stay below an epoch that was destroyed. */
static int end_child(uint64_t id, void *arg) {
  struct below *below = arg;
  struct epoch *e = epoch_slot(id);
  below->again = true;
  if (!below->reset && epoch_has_children(e) && tree_each(e, id, TREE_OPEN, 0, found_one, NULL)) {
    below->mark = new_mark();
    return 0;
  }
  int error = below->reset ? reset_one(e, id, NULL) : destroy_one(e, id, NULL);
  return error == EPERM || error == EBUSY ? error : 0; /* another error: another thread closed or ended it */
}

/* Ends each open epoch below, also those that are opened meanwhile, until the walk meets no new one. */
static int end_children(struct epoch *e, uint64_t id, bool reset) {
  struct below below = {reset, true, new_mark()};
  int error = 0;
  while (error == 0 && below.again) {
    below.again = false;
    error = tree_each(e, id, TREE_UNMET, below.mark, end_child, &below);
  }
  return error;
}

/* Looks at the whole tree before the first child goes. */
static int end_tree_below(struct epoch *e, uint64_t id, bool reset) {
  struct below below = {reset, false, 0};
  int error = look_at_one(id, true, reset);
  if (error == 0) error = tree_each(e, id, TREE_ALL, 0, look_at_child, &below);
  return error ? error : end_children(e, id, reset);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------- */

/* The first step of destroy and reset. Returns 0 once the children have ended. */
static int begin(struct epoch *e, uint64_t id, bool reset) {
  int error = epoch_destroyable(e, id);
  return error == 0 && epoch_has_children(e) ? end_tree_below(e, id, reset) : error;
}

static NOINLINE int destroy_any(struct epoch *e, uint64_t id, tslab_epoch_report *out) {
  int error = begin(e, id, false);
  if (error != 0) return error;
  report_begin(out, id);
  error = destroy_one(e, id, out);
  if (error == 0 && epoch_has_children(e)) end_children(e, id, false);
  report_end(out, error);
  return error;
}

static bool destroy_lone(struct epoch *e, uint64_t id) {
  uint64_t handed_out = 0;
  struct heap *heap = lone_ready(e, id, DESTROY, &handed_out);
  if (UNLIKELY(!heap)) return false;
  epoch_learn(e, false);
  lone_empty(e, heap, NULL);
  epoch_cache_keep(current_thread, e, handed_out);
  return true;
}

int epoch_destroy(uint64_t id, tslab_epoch_report *out) {
  struct epoch *e = epoch_slot(id);
  if (LIKELY(lone_is_possible(e, out))) {
    handle_lock_quiet(e);
    if (LIKELY(destroy_lone(e, id))) {
      epoch_unlock(e);
      return 0;
    }
    epoch_unlock(e);
  }
  return destroy_any(e, id, out);
}

static NOINLINE int reset_any(struct epoch *e, uint64_t id, tslab_epoch_report *out) {
  int error = begin(e, id, true);
  if (error != 0) return error;
  report_begin(out, id);
  error = reset_one(e, id, out);
  report_end(out, error);
  return error;
}

static bool reset_lone(struct epoch *e, uint64_t id) {
  struct heap *heap = lone_ready(e, id, RESET, NULL);
  if (UNLIKELY(!heap)) return false;
  epoch_learn(e, false);
  lone_empty(e, heap, NULL);
  heap->bump.off = false;
  begin_era(e);
  return true;
}

int epoch_reset(uint64_t id, tslab_epoch_report *out) {
  struct epoch *e = epoch_slot(id);
  if (LIKELY(lone_is_possible(e, out))) {
    handle_lock_quiet(e);
    if (LIKELY(reset_lone(e, id))) {
      epoch_unlock(e);
      return 0;
    }
    epoch_unlock(e);
  }
  return reset_any(e, id, out);
}
