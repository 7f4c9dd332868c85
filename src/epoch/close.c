/* close: see close.h.                                                                                floor: epoch */
#include "epoch/close.h"

#include "base/probe.h"
#include "epoch/finish.h"
#include "epoch/lone.h"
#include "epoch/report.h"
#include "epoch/tree.h"
#include "heap/teardown.h"
#include "os/os.h"
#include <errno.h>

/* ---- the pieces -------------------------------------------------------------------------------------------------- */

/* In a fork child a thread without a heap may end an epoch that another thread of the parent had begun to end. */
void close_begin(struct epoch *e) {
  PROBE3("tslab", "epoch_close", epoch_id(e), (uintptr_t)e->label, epoch_own_bytes(e));
  e->closed_after = 0;
  epoch_cache_drop_claim(e, current_heap->plain);
  atomic_store_explicit(&e->arena.recycled, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.returned, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.closing, true, memory_order_relaxed);
  inside_shut(e);
  atomic_store_explicit(&e->state, EPOCH_CLOSING, memory_order_seq_cst); /* see epoch_after_free */
}

/* Stops a heap whose thread is inside. The thread finds its chunk full and uses up its lists; its leave does the
 * rest. */
static void halt(struct heap *heap) {
  lock_take(&heap->lock);
  heap->closing = true;
  lock_release(&heap->lock);
  bump_halt(heap);
}

/* Closes every heap that no other thread is inside, and halts the others. Returns false if the deadline came first. */
static bool close_heaps(struct epoch *e, uint64_t deadline_ns) {
  for (struct heap *p = e->heaps, *next; p; p = next) {
    next = p->next_of_epoch;
    bool inside = inside_is_busy(p);
    if (inside && !attach_is_mine(p)) {
      halt(p);
      continue;
    }
    if (!heap_close(p, deadline_ns)) return false;
    if (inside) bump_leave(p, false);
    else attach_drop(e, p);
  }
  return true;
}

void close_contents(struct epoch *e) {
  close_heaps(e, UINT64_MAX);
  arena_drop_ready(&e->arena);
  arena_return_spilled(&e->arena, SIZE_MAX);
}

bool close_tail(struct epoch *e, tslab_epoch_report *out) {
  atomic_store_explicit(&e->arena.release_target, RELEASE_TO_KERNEL, memory_order_relaxed);
  report_bytes(out, e);
  if (epoch_finish_locked(e)) return true;
  uint64_t after = (os_now_coarse_ns() - e->opened_ns) / CLOSED_UNIT;
  e->closed_after = (uint32_t)min_size(after + 1, UINT32_MAX);
  return false;
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

/* The work that is left once the epoch is released. STAYS: nothing; it waits for its last block, or is cached.
 * HAS_ENDED: retire it. CHILDREN_FIRST: close its children, while no thread owns it. MORE: the next step. */
enum verdict { STAYS, HAS_ENDED, CHILDREN_FIRST, MORE };

static enum verdict tail(struct epoch *e, tslab_epoch_report *out) { return close_tail(e, out) ? HAS_ENDED : STAYS; }

static enum verdict close_all(struct epoch *e, tslab_epoch_report *out, bool might_learn) {
  close_contents(e);
  if (epoch_own_bytes(e) != 0 || e->arena.by_slabs) epoch_learn(e, false);
  else if (might_learn) epoch_learn(e, true);
  report_live(out, e);
  return tail(e, out);
}

/* One piece of purging, by which a step may exceed its deadline. */
#define STEP_BYTES (256 * KiB)

static enum verdict close_some(struct epoch *e, uint64_t deadline_ns, tslab_epoch_report *out) {
  bool done = close_heaps(e, deadline_ns);
  if (done) arena_drop_ready(&e->arena);
  while (done && arena_return_spilled(&e->arena, STEP_BYTES)) done = os_now_ns() < deadline_ns;
  if (!done) {
    report_bytes(out, e);
    return MORE;
  }
  report_live(out, e);
  e->stepping = false;
  return tail(e, out);
}

/* Keeps all other threads from ending the epoch until its children are closed. */
static enum verdict wait_for_children(struct epoch *e) {
  e->descending = true;
  return CHILDREN_FIRST;
}

/* Closes an open epoch. */
static enum verdict close_locked(struct epoch *e, tslab_epoch_report *out) {
  size_t own = epoch_own_bytes(e);
  if (lone_ends_in_cache(e, NULL, true)) {
    if (out) out->bytes_recycled = own;
    return STAYS;
  }
  bool might_learn = e->heaps && own != 0 && epoch_is_plain(e);
  close_begin(e);
  return epoch_has_children(e) ? wait_for_children(e) : close_all(e, out, might_learn);
}

/* Closes an epoch of the tree, unless another thread has begun to. From now on it gets no more children, but the walk
 * may miss those that were opened since it met the epoch. */
static int close_child(uint64_t id, void *again) {
  struct epoch *e = epoch_at(epoch_index(id));
  enum verdict verdict = STAYS;
  struct lock *gate = epoch_take(e);
  if (epoch_has_children(e)) *(bool *)again = true;
  if (epoch_error(e, id) == 0) {
    close_begin(e);
    verdict = close_all(e, NULL, false);
  }
  epoch_release(e, gate);
  if (verdict == HAS_ENDED) epoch_retire(e);
  return 0;
}

/* Closes every epoch below. A walk meets parents first, and after each walk the epochs of one more level are closing,
 * also those that were opened meanwhile. */
static void close_children(struct epoch *e) {
  for (bool again = true; again;) {
    again = false;
    tree_each(e, epoch_id(e), TREE_OPEN, 0, close_child, &again);
  }
}

/* Carries out a verdict. Caller holds no lock. Returns STAYS, HAS_ENDED or MORE. */
static enum verdict carry_out(struct epoch *e, enum verdict verdict, uint64_t deadline_ns, tslab_epoch_report *out) {
  if (verdict == CHILDREN_FIRST) {
    close_children(e);
    struct lock *gate = epoch_take(e);
    /* It is no longer descending if a signal handler forked meanwhile and this is the child: see go_on. */
    bool goes_on = e->descending;
    e->descending = false;
    if (!goes_on) verdict = STAYS;
    else verdict = e->stepping ? close_some(e, deadline_ns, out) : close_all(e, out, false);
    epoch_release(e, gate);
  }
  if (verdict == HAS_ENDED) epoch_retire(e);
  return verdict;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------- */

static NOINLINE int close_any(struct epoch *e, uint64_t id, tslab_epoch_report *out) {
  int error = epoch_error(e, id);
  if (error == ESTALE) return error;
  enum verdict verdict = STAYS;
  report_begin(out, id);
  struct lock *gate = epoch_take(e);
  error = epoch_error(e, id);
  if (error == 0) verdict = close_locked(e, out);
  else if (error == ESHUTDOWN) report_live(out, e);
  epoch_release(e, gate);
  carry_out(e, verdict, UINT64_MAX, out);
  report_end(out, error);
  return error;
}

static bool close_lone(struct epoch *e, uint64_t id) {
  uint64_t handed_out = 0;
  struct heap *heap = lone_ready(e, id, CLOSE, &handed_out);
  if (UNLIKELY(!heap)) return false;
  if (handed_out != heap->before) epoch_learn(e, true);
  lone_empty(e, heap, NULL);
  epoch_cache_keep(current_thread, e, handed_out);
  return true;
}

int epoch_close(uint64_t id, tslab_epoch_report *out) {
  struct epoch *e = epoch_slot(id);
  if (LIKELY(lone_is_possible(e, out))) {
    epoch_lock(e);
    if (LIKELY(close_lone(e, id))) {
      epoch_unlock(e);
      return 0;
    }
    epoch_unlock(e);
  }
  return close_any(e, id, out);
}

/* Takes the first step of a close, or the next one. *error: EAGAIN while another thread closes the children. */
static enum verdict step_locked(struct epoch *e, uint64_t id, uint64_t deadline_ns, tslab_epoch_report *out,
                                int *error) {
  *error = epoch_error(e, id);
  bool begins = *error == 0, goes_on = *error == ESHUTDOWN && e->stepping;
  if (goes_on) *error = e->descending ? EAGAIN : 0;
  if (*error != 0) {
    report_live(out, e);
    return STAYS;
  }
  if (begins) {
    close_begin(e);
    e->stepping = true;
    if (epoch_has_children(e)) return wait_for_children(e); /* no other thread goes on with it meanwhile */
  }
  return close_some(e, deadline_ns, out);
}

int epoch_close_step(uint64_t id, uint64_t max_ns, tslab_epoch_report *out) {
  uint64_t now = os_now_ns(), deadline_ns = max_ns < UINT64_MAX - 1 - now ? now + max_ns : UINT64_MAX - 1;
  struct epoch *e = epoch_slot(id);
  int error = epoch_error(e, id);
  if (error == ESTALE) return error;
  report_begin(out, id);
  struct lock *gate = epoch_take(e);
  enum verdict verdict = step_locked(e, id, deadline_ns, out, &error);
  epoch_release(e, gate);
  if (carry_out(e, verdict, deadline_ns, out) == MORE) error = EAGAIN;
  report_end(out, error);
  return error;
}

/* ---- what a close left ------------------------------------------------------------------------------------------- */

/* Closes the thread's heaps that it left in a closing epoch. */
static enum verdict leave_closing(struct epoch *e) {
  for (struct heap *p = e->heaps, *next; p; p = next) {
    next = p->next_of_epoch;
    if (!attach_is_mine(p) || inside_is_busy(p)) continue;
    heap_close(p, UINT64_MAX);
    attach_drop(e, p);
  }
  arena_return_spilled(&e->arena, SIZE_MAX);
  return epoch_finish_locked(e) ? HAS_ENDED : STAYS;
}

/* Closes an epoch that closes by itself, if this was the last thread inside. */
static enum verdict leave_open(struct epoch *e, uint64_t id) {
  inside_shut(e);
  bool closes = inside_threads(e) == 0;
  atomic_store_explicit(&e->open_id, id, memory_order_release);
  return closes ? close_locked(e, NULL) : STAYS;
}

static enum verdict leave_locked(struct epoch *e, uint64_t id) {
  if (epoch_id(e) != id) return STAYS;
  if (epoch_state(e) == EPOCH_CLOSING) return leave_closing(e);
  bool closes = epoch_state(e) == EPOCH_OPEN && atomic_load_explicit(&e->scope_ended, memory_order_relaxed);
  return closes ? leave_open(e, id) : STAYS;
}

void epoch_after_leave(struct epoch *e, uint64_t id) {
  struct lock *gate = epoch_take(e);
  enum verdict verdict = leave_locked(e, id);
  epoch_release(e, gate);
  carry_out(e, verdict, UINT64_MAX, NULL);
}

/* For a fork child: goes on with a close that had released the epoch for its children. This thread closes the children
 * now. A close by steps then waits for its next step. */
static void go_on(struct epoch *e) {
  if (!e->stepping) {
    carry_out(e, CHILDREN_FIRST, UINT64_MAX, NULL);
    return;
  }
  close_children(e);
  e->descending = false;
}

void epochs_close_on(void) {
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    struct epoch *e = epoch_at(i);
    if (epoch_state(e) != EPOCH_CLOSING) continue;
    if (e->descending) go_on(e);
    else epoch_finish(e); /* the thread that freed its last block, or left it last, may not exist in the child */
  }
}
