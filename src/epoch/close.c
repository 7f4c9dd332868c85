/* ending: see ending.h.                                                                             floor: epoch */
#include "epoch/close.h"

#include "base/log.h"
#include "base/options.h"
#include "epoch/cache.h"
#include "epoch/handle.h"
#include "epoch/scope.h"
#include "epoch/status.h"
#include "epoch/trap.h"
#include "epoch/tree.h"
#include "heap/bump.h"
#include "heap/chunk_cache.h"
#include "heap/fast.h"
#include "heap/flush.h"
#include "heap/label.h"
#include "heap/teardown.h"
#include "os/os.h"
#include <errno.h>
#include <string.h>

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static void report_begin(tslab_epoch_report *out, uint64_t id) {
  if (!out) return;
  *out = (tslab_epoch_report){.epoch = id, .elapsed_ns = os_now_ns()};
  if (options.report_rss) out->rss_before = os_resident_bytes();
}

static void report_end(tslab_epoch_report *out, int error) {
  if (!out) return;
  if (error != 0 && error != ESHUTDOWN && error != EAGAIN) { /* nothing was done */
    *out = (tslab_epoch_report){.epoch = out->epoch};
    return;
  }
  out->elapsed_ns = os_now_ns() - out->elapsed_ns;
  if (options.report_rss) out->rss_after = os_resident_bytes();
}

/* By the owner. */
static void report_live(tslab_epoch_report *out, struct epoch *e) {
  if (!out) return;
  tslab_epoch_status status;
  status_of(e, &status);
  out->threads_inside = status.threads_inside;
  out->live_blocks = status.live_blocks;
  out->live_bytes = status.live_bytes;
  out->slabs_pinned = status.slabs_pinned;
}

static void report_given_up(tslab_epoch_report *out, struct chunk_live given_up) {
  if (!out) return;
  out->live_blocks = given_up.blocks;
  out->live_bytes = given_up.bytes;
  out->slabs_pinned = given_up.blocks != 0;
}

static void report_bytes(tslab_epoch_report *out, struct arena *arena) {
  if (!out) return;
  out->bytes_recycled = atomic_load_explicit(&arena->recycled, memory_order_relaxed);
  out->bytes_returned = atomic_load_explicit(&arena->returned, memory_order_relaxed);
}

/* ---- closing ----------------------------------------------------------------------------------------------------- */

static void give_back_unlocked(struct epoch *e, struct lock *gate) {
  epoch_give_back(e, gate);
  epoch_unlock(e);
}

static bool is_mine(const struct heap *heap) { return current_thread && heap->thread == current_thread; }

/* In this file the owner is the caller of epoch_take: it owns the epoch, or has it locked when it holds little. `gate`
 * is what epoch_take returned; a function that takes it along gives the epoch back.
 *
 * The epoch's only heap, when it is attached to this thread and holds nothing but its chunk, or slabs: the end of most
 * requests. NULL when it is not so. By the owner. */
INLINE struct heap *lone_heap(const struct epoch *e) {
  struct heap *heap = e->heaps;
  if (!heap || heap->next_of_epoch || !is_mine(heap) || options.on_destroy == DESTROY_TRAPS) return NULL;
  return bump_is_all(heap) ? heap : NULL;
}

/* Of a lone heap: whether each of its blocks was freed, by its thread where they lie in slabs. */
INLINE bool is_drained(struct heap *heap, uint64_t *handed_out) {
  struct tcache_sums sums = {heap->served, heap->freed};
  if (UNLIKELY(heap->opened)) sums = tcache_sums(heap);
  *handed_out = heap->bump.allocations + heap->bump.sealed + heap->bump.count + sums.allocations;
  return !bump_has_live(heap) && (!heap_has_slabs(heap) || tcache_unfreed(sums) == heap->lost);
}

static size_t own_bytes(const struct epoch *e) {
  return atomic_load_explicit(&e->arena.own, memory_order_relaxed);
}

INLINE void empty_lone(struct epoch *e, struct heap *heap, struct chunk_live *given_up) {
  if (heap->bump.chunk && heap->bump.count > 0) {
    if (given_up) *given_up = chunk_live(heap->bump.chunk);
    bump_empty(heap);
  }
  handle_forget_all(e);
}

INLINE int destroyable(const struct epoch *e, uint64_t id) {
  int error = epoch_error(e, id);
  if (error == 0 && !(LOAD_RACING(e->flags) & TSLAB_EPOCH_DESTROYABLE)) error = EPERM;
  return error;
}

/* Handles may be many. New slabs must be counted first, and trimmed. */
INLINE bool takes_long(const struct epoch *e, const struct heap *heap) {
  return atomic_load_explicit(&e->handles, memory_order_relaxed) != 0 ||
         (heap_has_slabs(heap) && e->kept_at != (uint32_t)heap->visits);
}

/* What ends most requests: nobody wants a report, and the epoch is one heap, this thread's, with its chunk or slabs,
 * and nothing more. That heap, with the lock held, and what it handed out; or NULL, and it is not. */
enum ending { CLOSE, DESTROY, RESET };
INLINE struct heap *take_lone(struct epoch *e, uint64_t id, enum ending how, uint64_t *handed_out,
                              const tslab_epoch_report *out) {
  if (UNLIKELY(!e || out || epoch_has_children(e) || options.on_destroy != DESTROY_DESTROYS)) return NULL;
  if (how == CLOSE) epoch_lock(e);
  else handle_lock_quiet(e);
  int error = how == CLOSE ? epoch_error(e, id) : destroyable(e, id);
  struct heap *heap = error == 0 ? lone_heap(e) : NULL;
  if (heap && UNLIKELY(takes_long(e, heap))) heap = NULL;
  bool drained = heap && how != RESET && is_drained(heap, handed_out);
  if (heap && (how == CLOSE ? !drained : heap_has_slabs(heap))) heap = NULL;
  bool stays = heap && (how == RESET || (!scope_is_inside(heap) && epoch_cache_may_keep(current_thread, e)));
  if (LIKELY(stays)) return heap;
  epoch_unlock(e);
  return NULL;
}

/* When true, the epoch has been given back. */
static bool ends_in_cache(struct epoch *e, struct lock *gate, struct chunk_live *given_up, bool may_give_up) {
  struct heap *heap = lone_heap(e);
  uint64_t handed_out = 0;
  if (!heap || !current_thread || scope_is_inside(heap)) return false;
  bool drained = is_drained(heap, &handed_out);
  if ((may_give_up ? heap_has_slabs(heap) : !drained) || !epoch_cache_may_keep(current_thread, e)) return false;
  if (!may_give_up && handed_out != heap->before) epoch_cache_learn(e, true);
  empty_lone(e, heap, given_up);
  epoch_give_back(e, gate);
  epoch_cache_keep(current_thread, e, handed_out);
  return true;
}

/* In a fork child a thread without a heap may end what another thread of the parent had begun to end. */
static void begin_closing(struct epoch *e) {
  epoch_cache_drop_claim(e, current_heap->plain);
  atomic_store_explicit(&e->arena.recycled, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.returned, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.closing, true, memory_order_relaxed);
  scope_shut(e);
  atomic_store_explicit(&e->state, EPOCH_CLOSING, memory_order_seq_cst); /* see epoch_after_free */
}

/* Another thread is inside: it finds its chunk full, its lists last until they are empty, and its leave
 * does the rest. */
static void halt(struct heap *heap) {
  lock_take(&heap->lock);
  heap->closing = true;
  lock_release(&heap->lock);
  bump_halt(heap);
}

/* Every heap that can be had; false when the deadline came first. */
static bool close_heaps(struct epoch *e, uint64_t deadline_ns) {
  for (struct heap *p = e->heaps, *next; p; p = next) {
    next = p->next_of_epoch;
    bool inside = scope_is_inside(p);
    if (inside && !is_mine(p)) {
      halt(p);
      continue;
    }
    if (!heap_close(p, deadline_ns)) return false;
    if (inside) bump_leave(p, false);
    else scope_detach(e, p);
  }
  return true;
}

static void close_children(struct epoch *e) {
  for (bool again = true; again;) {
    struct tree_look look = tree_look(e, epoch_id(e), TREE_OPEN, 0);
    again = false;
    while (tree_look_on(&look))
      for (unsigned i = 0; i < look.count; i++) /* another thread may close it, and have its children to come */
        again |= epoch_close(look.found[i], NULL) == ESHUTDOWN;
  }
}

/* From here on what comes free goes back at once. Gives the epoch back. */
static void end_closing(struct epoch *e, struct lock *gate, tslab_epoch_report *out) {
  atomic_store_explicit(&e->arena.release_target, RELEASE_TO_KERNEL, memory_order_relaxed);
  report_bytes(out, &e->arena);
  epoch_finish_if_done(e, gate);
}

/* The children go first, while the epoch has no owner. Returns the new gate. */
static struct lock *close_children_first(struct epoch *e, struct lock *gate) {
  if (!epoch_has_children(e)) return gate;
  e->descending = true;
  epoch_give_back(e, gate);
  epoch_unlock(e);
  close_children(e);
  gate = epoch_take(e);
  e->descending = false;
  return gate;
}

/* An open epoch, by its owner. Gives it back. */
static void close_open(struct epoch *e, struct lock *gate, tslab_epoch_report *out) {
  size_t own = own_bytes(e);
  if (ends_in_cache(e, gate, NULL, false)) {
    if (out) out->bytes_recycled = own;
    return;
  }
  bool might_learn = e->heaps && own != 0 && epoch_cache_is_plain(e);
  begin_closing(e);
  gate = close_children_first(e, gate);
  close_heaps(e, UINT64_MAX);
  arena_drop_ready(&e->arena);
  arena_return_spilled(&e->arena, SIZE_MAX);
  if (own_bytes(e) != 0 || e->arena.by_slabs) epoch_cache_learn(e, false);
  else if (might_learn) epoch_cache_learn(e, true);
  report_live(out, e);
  end_closing(e, gate, out);
}

static NOINLINE int close_any(struct epoch *e, uint64_t id, tslab_epoch_report *out) {
  int error = epoch_error(e, id);
  if (error == ESTALE) return error;
  report_begin(out, id);
  struct lock *gate = epoch_take(e);
  error = epoch_error(e, id);
  if (error == 0) {
    close_open(e, gate, out);
  } else {
    if (error == ESHUTDOWN) report_live(out, e);
    give_back_unlocked(e, gate);
  }
  report_end(out, error);
  return error;
}

int epoch_close(uint64_t id, tslab_epoch_report *out) {
  struct epoch *e = epoch_slot(id);
  uint64_t handed_out = 0;
  struct heap *heap = take_lone(e, id, CLOSE, &handed_out, out);
  if (UNLIKELY(!heap)) return close_any(e, id, out);
  if (handed_out != heap->before) epoch_cache_learn(e, true);
  empty_lone(e, heap, NULL);
  epoch_cache_keep(current_thread, e, handed_out);
  return 0;
}

/* One piece of purging: what may come after the deadline. */
#define STEP_BYTES (256 * KiB)

int epoch_close_step(uint64_t id, uint64_t max_ns, tslab_epoch_report *out) {
  uint64_t now = os_now_ns(), deadline_ns = max_ns < UINT64_MAX - 1 - now ? now + max_ns : UINT64_MAX - 1;
  struct epoch *e = epoch_slot(id);
  int error = epoch_error(e, id);
  if (error == ESTALE) return error;
  report_begin(out, id);
  struct lock *gate = epoch_take(e);
  error = epoch_error(e, id);
  bool ours = error == 0 || (error == ESHUTDOWN && e->stepping);
  if (!ours || e->descending) {
    if (ours) error = EAGAIN;
    report_live(out, e);
    give_back_unlocked(e, gate);
    report_end(out, error);
    return error;
  }
  if (error == 0) {
    begin_closing(e);
    e->stepping = true;
    gate = close_children_first(e, gate); /* nobody else goes on with it meanwhile */
  }
  bool done = close_heaps(e, deadline_ns);
  if (done) arena_drop_ready(&e->arena);
  while (done && arena_return_spilled(&e->arena, STEP_BYTES)) done = os_now_ns() < deadline_ns;
  report_live(done ? out : NULL, e);
  if (done) {
    e->stepping = false;
    end_closing(e, gate, out);
  } else {
    report_bytes(out, &e->arena);
    give_back_unlocked(e, gate);
  }
  report_end(out, 0);
  return done ? 0 : EAGAIN;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void epoch_finish_if_done(struct epoch *e, struct lock *gate) {
  /* Who is inside before what it owns: the last one inside may have taken a first chunk before it left. */
  bool done = epoch_state(e) == EPOCH_CLOSING && !e->stepping && !e->descending && scope_threads_inside(e) == 0 &&
              atomic_load_explicit(&e->arena.own, memory_order_seq_cst) == 0 && !epoch_has_children(e);
  if (!done) {
    give_back_unlocked(e, gate);
    return;
  }
  while (e->heaps) scope_detach(e, e->heaps);
  handle_forget_all(e);
  epoch_give_back(e, gate);
  struct epoch *parent = epoch_end(e);
  if (parent) epoch_after_free(parent->arena.index); /* it may have waited for its last child */
}

void epoch_finish(struct epoch *e) { epoch_finish_if_done(e, epoch_take(e)); }

void epoch_after_leave(struct epoch *e, uint64_t id) {
  struct lock *gate = epoch_take(e);
  if (epoch_id(e) != id) {
    give_back_unlocked(e, gate);
  } else if (epoch_state(e) == EPOCH_CLOSING) {
    for (struct heap *p = e->heaps, *next; p; p = next) {
      next = p->next_of_epoch;
      if (!is_mine(p) || scope_is_inside(p)) continue;
      heap_close(p, UINT64_MAX);
      scope_detach(e, p);
    }
    arena_return_spilled(&e->arena, SIZE_MAX);
    epoch_finish_if_done(e, gate);
  } else {
    bool closes = epoch_state(e) == EPOCH_OPEN && atomic_load_explicit(&e->scope_ended, memory_order_relaxed);
    if (closes) {
      scope_shut(e);
      closes = scope_threads_inside(e) == 0;
      atomic_store_explicit(&e->open_id, id, memory_order_release);
    }
    if (closes) close_open(e, gate, NULL);
    else give_back_unlocked(e, gate);
  }
}

/* Its closer had given it back for its children, which the child's own thread closes now. One that is closed step
 * by step has its next step to come. */
static void go_on(struct epoch *e) {
  e->descending = false;
  close_children(e);
  struct lock *gate = epoch_take(e);
  if (e->stepping) {
    give_back_unlocked(e, gate);
    return;
  }
  close_heaps(e, UINT64_MAX);
  arena_drop_ready(&e->arena);
  arena_return_spilled(&e->arena, SIZE_MAX);
  end_closing(e, gate, NULL);
}

void epochs_close_on(void) {
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    struct epoch *e = epoch_at(i);
    if (epoch_state(e) != EPOCH_CLOSING) continue;
    if (e->descending) go_on(e);
    else epoch_finish(e); /* who freed its last block, or was the last to leave it, may not be there to end it */
  }
}

/* ---- destroying -------------------------------------------------------------------------------------------------- */

/* Gives up all runs but `but`, which may be NULL. Chunks go to the thread of `keeper` first, a heap of this thread's or
 * NULL. The caller counts what was recycled and returned. */
static struct returning take_apart(struct epoch *e, const struct run *but, struct heap *keeper) {
  struct arena *arena = &e->arena;
  struct returning returning = {0};
  size_t collected = 0;
  for (unsigned steps = 0;; steps++) {
    if (!epoch_is_owned(e)) lock_count_steps(steps);
    arena_lock(arena);
    struct run *run = arena_first(arena);
    if (run && run == but) run = arena_next(run);
    arena_unlock(arena);
    if (!run) break;
    bool is_chunk = run->kind == RUN_CHUNK;
    size_t bytes = run_bytes(run);
    collected += bytes;
    run_retire(run);
    arena_unlist(arena, run);
    if (options.on_destroy == DESTROY_TRAPS && trap_set(run)) continue;
    if (is_chunk && keeper && chunk_cache_put(keeper, run)) returning.recycled += bytes;
    else returning_add(&returning, run);
  }
  returning_flush(&returning);
  arena_finish_release(arena, collected);
  return returning;
}

void epoch_take_apart(struct epoch *e, struct heap *keeper) {
  struct returning all = take_apart(e, NULL, keeper);
  atomic_fetch_add_explicit(&e->arena.recycled, all.recycled, memory_order_relaxed);
  atomic_fetch_add_explicit(&e->arena.returned, all.returned, memory_order_relaxed);
}

/* Where a heap goes on in its chunk, the others and large blocks are given up. By the owner; nobody may be inside but
 * its thread. */
static void shed(struct epoch *e) {
  struct heap *heap = e->heaps;
  if (!heap || heap->next_of_epoch || !is_mine(heap) || options.on_destroy != DESTROY_DESTROYS) return;
  if (!heap->bump.chunk || heap_has_slabs(heap) || own_bytes(e) == run_bytes(heap->bump.chunk)) return;
  handle_forget_all(e);
  struct returning others = take_apart(e, heap->bump.chunk, heap);
  STORE_RACING(e->recycled_here, e->recycled_here + others.recycled);
  if (others.returned) shared_add(&labels[e->arena.label].returned, others.returned);
}

static void destroy_all(struct epoch *e) {
  struct heap *mine = NULL;
  handle_forget_all(e); /* now: a closing child may keep the epoch */
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) {
    if (is_mine(p)) mine = p;
    heap_forget(p, false);
    bump_leave(p, false);
    bump_start(p);
  }
  epoch_take_apart(e, mine);
  arena_drop_ready(&e->arena);
  arena_return_spilled(&e->arena, SIZE_MAX);
}

/* Whether nobody who must not be is inside. From here on nobody comes in, until open_id is set again. */
static bool clear_of_threads(struct epoch *e, bool caller_may_be_inside) {
  bool alone = e->heaps && !e->heaps->next_of_epoch && is_mine(e->heaps);
  if (!alone) scope_shut(e);
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch)
    if (scope_is_inside(p) && !(caller_may_be_inside && is_mine(p))) return false;
  return true;
}

static void reopen(struct epoch *e, uint64_t id) { atomic_store_explicit(&e->open_id, id, memory_order_release); }

/* Returns why the epoch with that id cannot be destroyed, as far as one can know before; 0 when nothing is known. */
static int look_at_one(uint64_t id, bool is_root, bool caller_may_be_inside) {
  struct epoch *e = epoch_slot(id);
  struct lock *gate = epoch_take(e);
  int error = 0;
  if (epoch_id(e) == id) {
    for (struct heap *p = e->heaps; p; p = p->next_of_epoch)
      if (scope_is_inside(p) && !(caller_may_be_inside && is_mine(p))) error = EBUSY;
    if (!is_root && !(e->flags & TSLAB_EPOCH_DESTROYABLE)) error = EPERM;
  }
  give_back_unlocked(e, gate);
  return error;
}

/* Of the whole tree, before the first child goes. */
static int look_at_tree(struct epoch *e, uint64_t id, bool caller_may_be_inside) {
  int error = look_at_one(id, true, caller_may_be_inside);
  struct tree_look look = tree_look(e, id, TREE_ALL, 0);
  while (error == 0 && tree_look_on(&look))
    for (unsigned i = 0; i < look.count && error == 0; i++)
      error = look_at_one(look.found[i], false, caller_may_be_inside);
  return error;
}

static uint32_t new_mark(void) {
  static _Atomic uint32_t marks;
  return atomic_fetch_add_explicit(&marks, 1, memory_order_relaxed) + 1;
}

/* Each child that is open, until there is none that was not met: one that was opened meanwhile goes, too. */
static int end_children(struct epoch *e, uint64_t id, int (*end)(uint64_t, tslab_epoch_report *)) {
  uint32_t mark = new_mark();
  for (bool again = true; again;) {
    struct tree_look look = tree_look(e, id, TREE_CHILDREN, mark);
    again = false;
    while (tree_look_on(&look))
      for (unsigned i = 0; i < look.count; i++) {
        int error = end(look.found[i], NULL);
        if (error != 0 && error != ESTALE) return error; /* stale: somebody else ended it */
        again = true;
      }
  }
  return 0;
}

static int destroy_children(struct epoch *e, uint64_t id) { return end_children(e, id, epoch_destroy); }

static int for_children(struct epoch *e, uint64_t id, bool reset) {
  int error = look_at_tree(e, id, reset);
  return error ? error : end_children(e, id, reset ? epoch_reset : epoch_destroy);
}

#define SURVIVORS_SHOWN 8

struct survivors {
  unsigned count;
  struct {
    void *block;
    size_t size;
  } shown[SURVIVORS_SHOWN];
};

/* Under the arena's lock, where nothing may be written. */
static void note_survivor(void *block, size_t size, void *noted) {
  struct survivors *survivors = noted;
  if (survivors->count == SURVIVORS_SHOWN) return;
  survivors->shown[survivors->count].block = block;
  survivors->shown[survivors->count++].size = size;
}

/* TSLAB_ON_DESTROY=check: says who would have been destroyed alive. By the owner. */
static void tell_survivors(struct epoch *e, const char *call) {
  tslab_epoch_status status;
  struct survivors survivors = {.count = 0};
  status_of(e, &status);
  if (status.live_blocks == 0) return;
  log_line("epoch %zu \"%s\": %zu blocks (%zu bytes) outlive %s; kept, because TSLAB_ON_DESTROY=check",
           (size_t)status.epoch, e->label, (size_t)status.live_blocks, (size_t)status.live_bytes, call);
  status_each_survivor(e, note_survivor, &survivors);
  for (unsigned i = 0; i < survivors.count; i++)
    log_line("  %p, %zu bytes", survivors.shown[i].block, survivors.shown[i].size);
}

static void destroy_checked(struct epoch *e, struct lock *gate, tslab_epoch_report *out) {
  begin_closing(e);
  close_heaps(e, UINT64_MAX);
  arena_drop_ready(&e->arena);
  arena_return_spilled(&e->arena, SIZE_MAX);
  tell_survivors(e, "destroy");
  report_live(out, e);
  end_closing(e, gate, out);
}

/* What destroy and reset begin with: the children are done, and no thread that must not be is inside or comes in. 0
 * when the caller is the owner. */
static int take(struct epoch *e, uint64_t id, bool reset, tslab_epoch_report *out, struct lock **gate) {
  int error = destroyable(e, id);
  if (error == 0 && epoch_has_children(e)) error = for_children(e, id, reset);
  if (error != 0) return error;
  report_begin(out, id);
  *gate = handle_take_quiet(e);
  error = destroyable(e, id);
  if (error == 0 && !clear_of_threads(e, reset)) {
    reopen(e, id);
    error = EBUSY;
  }
  if (error == 0) return 0;
  give_back_unlocked(e, *gate);
  report_end(out, error);
  return error;
}

static NOINLINE int destroy_any(struct epoch *e, uint64_t id, tslab_epoch_report *out) {
  struct chunk_live given_up = {0, 0};
  struct lock *gate;
  int error = take(e, id, false, out, &gate);
  if (error != 0) return error;
  size_t own = own_bytes(e);
  epoch_cache_learn(e, false);
  if (options.on_destroy == DESTROY_CHECKS) {
    destroy_checked(e, gate, out);
  } else {
    if (!out) shed(e);
    if (ends_in_cache(e, gate, out ? &given_up : NULL, true)) {
      report_given_up(out, given_up);
      if (out) out->bytes_recycled = own;
    } else {
      report_live(out, e);
      begin_closing(e);
      destroy_all(e);
      end_closing(e, gate, out);
    }
  }
  if (epoch_has_children(e)) destroy_children(e, id);
  report_end(out, 0);
  return 0;
}

int epoch_destroy(uint64_t id, tslab_epoch_report *out) {
  struct epoch *e = epoch_slot(id);
  uint64_t handed_out = 0;
  struct heap *heap = take_lone(e, id, DESTROY, &handed_out, out);
  if (UNLIKELY(!heap)) return destroy_any(e, id, out);
  epoch_cache_learn(e, false);
  empty_lone(e, heap, NULL);
  epoch_cache_keep(current_thread, e, handed_out);
  return 0;
}

INLINE void begin_era(struct epoch *e) {
  e->era++;
  e->arena.first_of_label = false;
  atomic_store_explicit(&e->arena.bumped, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.freed, 0, memory_order_relaxed);
}

/* As ends_in_cache, but the epoch stays, and its thread may be inside. */
static bool rewinds(struct epoch *e, struct chunk_live *given_up) {
  if (!given_up) shed(e);
  struct heap *heap = lone_heap(e);
  if (!heap || heap_has_slabs(heap)) return false;
  empty_lone(e, heap, given_up);
  heap->bump.off = false;
  return true;
}

static NOINLINE int reset_any(struct epoch *e, uint64_t id, tslab_epoch_report *out) {
  struct chunk_live given_up = {0, 0};
  struct lock *gate;
  int error = take(e, id, true, out, &gate);
  if (error != 0) return error;
  epoch_cache_learn(e, false);
  if (options.on_destroy == DESTROY_CHECKS) {
    for (struct heap *p = e->heaps; p; p = p->next_of_epoch) {
      heap_rest(p);
      heap_flush_magazines(p, SIZE_MAX);
    }
    tell_survivors(e, "reset");
    report_live(out, e);
  } else if (rewinds(e, out ? &given_up : NULL)) {
    report_given_up(out, given_up);
    if (out) out->threads_inside = scope_threads_inside(e);
  } else {
    report_live(out, e);
    atomic_store_explicit(&e->arena.recycled, 0, memory_order_relaxed);
    atomic_store_explicit(&e->arena.returned, 0, memory_order_relaxed);
    destroy_all(e);
    report_bytes(out, &e->arena);
    epoch_count_bytes(e);
  }
  begin_era(e);
  reopen(e, id);
  give_back_unlocked(e, gate);
  report_end(out, 0);
  return 0;
}

int epoch_reset(uint64_t id, tslab_epoch_report *out) {
  struct epoch *e = epoch_slot(id);
  struct heap *heap = take_lone(e, id, RESET, NULL, out);
  if (UNLIKELY(!heap)) return reset_any(e, id, out);
  epoch_cache_learn(e, false);
  empty_lone(e, heap, NULL);
  heap->bump.off = false;
  begin_era(e);
  epoch_unlock(e);
  return 0;
}
