/* scope: see scope.h.                                                                                floor: epoch */
#include "epoch/scope.h"

#include "epoch/ending.h"
#include "epoch/spare.h"
#include "heap/chunk_cache.h"
#include "heap/fast.h"
#include "os/os.h"
#include <errno.h>

struct thread *_Atomic all_threads;

/* ---- threads ----------------------------------------------------------------------------------------------------- */


static struct {
  struct thread *free;
  struct cuttings cuttings;
  bool first_is_taken;
} own;
static struct thread first; /* most processes need no second one */

static struct thread *cut_thread(void) {
  if (own.first_is_taken) return pages_cut(&own.cuttings, round_up(sizeof(struct thread), CACHE_LINE));
  own.first_is_taken = true;
  return &first;
}

static struct thread *make_thread(void) {
  struct thread *thread = cut_thread();
  if (!thread) return NULL;
  thread->next = atomic_load_explicit(&all_threads, memory_order_relaxed);
  atomic_store_explicit(&all_threads, thread, memory_order_release); /* pairs with every walk of the list */
  return thread;
}

struct thread *thread_acquire(struct part *part) {
  lock_take(&threads_lock);
  struct thread *thread = own.free;
  if (thread) own.free = thread->next_free;
  else thread = make_thread();
  lock_release(&threads_lock);
  if (!thread) return NULL;
  thread->home = part;
  thread->depth = 0;
  thread->advanced = 0;
  thread->visiting = false;
  thread->scopes[0] = (struct scope){0, NULL};
  for (unsigned i = 0; i < NAMED; i++) thread->named[i] = NAMED_NONE(i);
  attach_start(&thread->attached);
  return thread;
}

static void leave(struct part *part, uint64_t id);

static void leave_all(struct thread *thread) {
  for (;; thread->depth--) {
    struct scope *scope = &thread->scopes[thread->depth];
    if (scope->part) leave(scope->part, scope->id);
    *scope = (struct scope){0, NULL};
    if (thread->depth == 0) return;
  }
}

/* Detaches the thread's part of the epoch, if that still is one; a spare that the scavenger has taken, the scavenger
 * detaches. Returns false while it has not. */
static bool forget_attached(const struct thread *thread, struct epoch *e, struct part *part) {
  if (!attach_is_valid(part, thread, e)) return true;
  struct lock *gate = epoch_take(e);
  bool is_mine = attach_is_valid(part, thread, e); /* it may be another epoch's by now */
  if (is_mine && epoch_state(e) != EPOCH_SPARE) {
    scope_detach(e, part);
    is_mine = false;
  }
  ending_finish_if_done(e, gate);
  return !is_mine;
}

static void forget_all_attached(const struct thread *thread) {
  const struct attachments *table = &thread->attached;
  for (uint32_t i = 0; i < (uint32_t)1 << table->log; i++) {
    const struct attachment *entry = &table->entries[i];
    while (entry->slot != 0 && !forget_attached(thread, epoch_at(entry->slot), entry->part)) os_rest();
  }
}

void thread_release(struct thread *thread) {
  leave_all(thread);
  spare_give_up(thread, false);
  forget_all_attached(thread);
  attach_end(&thread->attached);
  chunk_cache_end(thread->home);
  lock_take(&threads_lock);
  thread->next_free = own.free;
  own.free = thread;
  lock_release(&threads_lock);
}

/* ---- the two sides of a barrier ---------------------------------------------------------------------------------- */

_Atomic int scope_barrier;

#if defined(__SANITIZE_THREAD__)
static bool barrier_everywhere(void) { return false; } /* the detector does not know of the system call */
#else
static bool barrier_everywhere(void) { return os_barrier_everywhere(); }
#endif

static void decide_barrier(void) {
  if (atomic_load_explicit(&scope_barrier, memory_order_relaxed) != BARRIER_UNKNOWN) return;
  bool everywhere = barrier_everywhere();
  int unknown = BARRIER_UNKNOWN;
  atomic_compare_exchange_strong(&scope_barrier, &unknown, everywhere ? BARRIER_ONE_SIDED : BARRIER_TWO_SIDED);
}

void scope_set_looking_fenced(struct thread *thread, uint64_t id) {
  atomic_exchange_explicit(&thread->looking, id, memory_order_seq_cst);
}

void scope_shut(struct epoch *e) {
  atomic_exchange_explicit(&e->open_id, 0, memory_order_seq_cst);
  for (struct part *p = e->parts; p; p = p->next_of_epoch) {
    if (!p->thread || p->thread == current_thread) continue;
    if (scope_is_one_sided()) os_barrier_everywhere();
    else FENCE_ALL(); /* an exchange is less than that on arm64: what is looked at next could be looked at before */
    return;
  }
}

bool scope_is_inside(const struct part *part) {
  const struct thread *thread = part->thread;
  if (!thread) return false;
  uint64_t id = epoch_id((const struct epoch *)(const void *)part->lifetime);
  /* In this order: a thread is inside before it looks no longer. */
  return atomic_load_explicit(&thread->looking, memory_order_acquire) == id ||
         atomic_load_explicit(&part->entered, memory_order_acquire) != 0;
}

unsigned scope_threads_inside(const struct epoch *e) {
  unsigned inside = 0;
  for (struct part *p = e->parts; p; p = p->next_of_epoch) inside += scope_is_inside(p);
  return inside;
}

/* ---- attaching --------------------------------------------------------------------------------------------------- */

static void unlink_part(struct epoch *e, struct part *part) {
  if (e->parts == part) {
    STORE_RACING(e->parts, part->next_of_epoch);
    return;
  }
  struct part *before = e->parts;
  while (before->next_of_epoch != part) before = before->next_of_epoch;
  before->next_of_epoch = part->next_of_epoch;
}

/* First, so that the slot leads its thread to it, unless it leads another thread to another part. */
static void link_part(struct epoch *e, struct part *part) {
  if (atomic_load_explicit(&e->owner, memory_order_relaxed)) {
    part->next_of_epoch = e->parts->next_of_epoch;
    e->parts->next_of_epoch = part;
    return;
  }
  part->next_of_epoch = e->parts;
  STORE_RACING(e->parts, part);
  atomic_store_explicit(&e->owner, part->thread, memory_order_relaxed); /* only that thread compares it with its own */
}

/* A part that another thread left, so that its slabs are used up before new ones are made. */
static struct part *waiting_part(struct epoch *e) {
  for (struct part *p = e->parts; p; p = p->next_of_epoch) {
    if (p->thread) continue;
    lock_take(&p->lock); /* who flushes a part that serves nobody holds it */
    p->live = true;
    STORE_RACING(p->thread, current_thread);
    p->tally = current_part->tally;
    p->plain = current_part->plain;
    lock_release(&p->lock);
    unlink_part(e, p);
    return p;
  }
  return NULL;
}

struct part *scope_attach(struct thread *thread, struct epoch *e) {
  struct part *part = waiting_part(e);
  if (!part) {
    part = part_take_blank(&e->lifetime);
    if (!part) return NULL;
    bump_start(part);
  }
  link_part(e, part);
  attach_put(&thread->attached, e->lifetime.index, part);
  return part;
}

void scope_detach(struct epoch *e, struct part *part) {
  if (part_has_slabs(part) && part->thread == current_thread && !part->closing) heap_rest(part);
  bump_leave(part, true);
  if (e->parts == part) atomic_store_explicit(&e->owner, NULL, memory_order_relaxed);
  if (part_has_slabs(part)) {
    lock_take(&part->lock);
    part->live = false;
    STORE_RACING(part->thread, NULL);
    lock_release(&part->lock);
    return;
  }
  STORE_RACING(e->allocations, e->allocations + list_handed_out(part) - part->before);
  unlink_part(e, part);
  part_give_back(part);
}

void scope_check(const struct epoch *e) {
  const struct thread *owner = atomic_load_explicit(&e->owner, memory_order_relaxed);
  INVARIANT(0, !owner || (e->parts && e->parts->thread == owner));
}

/* ---- inside ------------------------------------------------------------------------------------------------------ */

struct part *scope_find_shared(const struct thread *thread, const struct epoch *e) {
  struct part *part = attach_find(&thread->attached, e->lifetime.index);
  return part && attach_is_valid(part, thread, e) ? part : NULL;
}

/* By a thread that is not looking: without a part of the epoch, or after somebody ended the epoch or is about to. */
static COLD struct part *hold_slow(struct thread *thread, uint64_t id, int *error) {
  struct epoch *e = epoch_slot(id);
  struct part *part = NULL;
  if ((*error = epoch_error(e, id)) != 0) return NULL;
  decide_barrier();
  *error = ENOMEM;
  if (!attach_make_room(&thread->attached, thread)) return NULL;
  epoch_lock(e);
  int closed = epoch_error(e, id);
  if (closed) {
    *error = closed;
  } else {
    part = scope_find_shared(thread, e); /* a reset was on its way */
    if (!part) part = scope_attach(thread, e);
    if (part) scope_stay(thread, part);
  }
  epoch_unlock(e);
  return part;
}

struct part *scope_hold(struct thread *thread, uint64_t id, int *error) {
  struct epoch *e = epoch_slot(id);
  if (LIKELY(e != NULL)) {
    struct part *part = scope_look(thread, e, id);
    if (LIKELY(part != NULL)) {
      scope_stay(thread, part);
      return part;
    }
    scope_look_away(thread, e, id);
  }
  return hold_slow(thread, id, error);
}

void scope_was_seen(struct epoch *e, uint64_t id) {
  if (epoch_id(e) == id) ending_left(e, id);
}

static void set_entered(struct part *part, uint32_t entered) {
  if (scope_is_one_sided()) {
    atomic_store_explicit(&part->entered, entered, memory_order_release); /* pairs with scope_is_inside */
    atomic_signal_fence(memory_order_seq_cst);
  } else {
    atomic_exchange_explicit(&part->entered, entered, memory_order_seq_cst);
  }
}

/* The part may be anybody's once the thread is outside. */
INLINE void let_go(struct epoch *e, struct part *part, uint64_t id) {
  uint32_t entered = atomic_load_explicit(&part->entered, memory_order_relaxed) - 1;
  set_entered(part, entered);
  /* The thread that left last meanwhile saw this one inside, and relies on it to complete the close. */
  if (entered == 0 && UNLIKELY(scope_open_id(e) != id || scope_has_left(e))) ending_left(e, id);
}

static struct epoch *epoch_of(const struct part *part) { return (struct epoch *)(void *)part->lifetime; }

void scope_let_go(struct part *part, uint64_t id) { let_go(epoch_of(part), part, id); }

/* The same at a scope's end, which an epoch may be waiting for. */
static void leave(struct part *part, uint64_t id) {
  struct epoch *e = epoch_of(part);
  if (UNLIKELY(e->flags & TSLAB_EPOCH_AUTO_CLOSE)) atomic_store_explicit(&e->left, true, memory_order_seq_cst);
  let_go(e, part, id);
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

static void make_current(struct thread *thread) {
  const struct scope *scope = &thread->scopes[thread->depth];
  current_part = scope->part ? scope->part : thread->home;
}

int scope_enter(struct thread *thread, uint64_t id) {
  struct part *part = NULL;
  int error;
  if (UNLIKELY(thread->depth == TSLAB_SCOPES)) return EOVERFLOW;
  if (id != 0 && !(part = scope_hold(thread, id, &error))) return error;
  thread->scopes[++thread->depth] = (struct scope){id, part};
  current_part = part ? part : thread->home;
  return 0;
}

int scope_leave(struct thread *thread, uint64_t id) {
  struct scope left = thread->scopes[thread->depth];
  if (UNLIKELY(thread->depth == 0 || left.id != id)) return EINVAL;
  thread->depth--;
  make_current(thread);
  if (left.part) leave(left.part, id);
  return 0;
}

int scope_switch(struct thread *thread, uint64_t id) {
  struct scope *scope = &thread->scopes[thread->depth], before = *scope;
  struct part *part = NULL;
  int error;
  if (id != 0 && !(part = scope_hold(thread, id, &error))) return error;
  *scope = (struct scope){id, part};
  make_current(thread);
  if (before.part) leave(before.part, before.id);
  return 0;
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

static void free_thread(struct thread *thread) {
  thread->next_free = own.free;
  own.free = thread;
}

/* A part that a thread had which is not there serves nobody, and nobody is inside. The thread may have been filling a
 * chunk. */
static void bury_parts(struct epoch *e) {
  const struct thread *owner = atomic_load_explicit(&e->owner, memory_order_relaxed);
  if (owner && owner != current_thread) atomic_store_explicit(&e->owner, NULL, memory_order_relaxed);
  for (struct part *p = e->parts; p; p = p->next_of_epoch) {
    if (p->thread) continue;
    atomic_store_explicit(&p->entered, 0, memory_order_relaxed);
    if (p->bump.chunk || p->bump.end) bump_forsake(p);
  }
}

/* Its table may be half built: the next thread gets a new one. */
static void bury_thread(struct thread *thread) {
  atomic_store_explicit(&thread->looking, 0, memory_order_relaxed);
  attach_start(&thread->attached);
}

static bool is_spare_of(const struct epoch *e, const struct thread *thread) {
  return epoch_state(e) == EPOCH_SPARE && e->parts && e->parts->thread == thread;
}

/* Spares that the scavenger, or a thread that is not there, had in its hands: one is this thread's again, more are lost
 * to the child. */
static void keep_one_spare(struct thread *thread) {
  struct epoch *kept = NULL;
  for (uint32_t i = 1; i <= lifetimes_made(); i++) {
    struct epoch *e = epoch_at(i);
    if (epoch_state(e) != EPOCH_SPARE) continue;
    if (!kept && thread && is_spare_of(e, thread)) {
      kept = e;
      continue;
    }
    if (e->parts) spare_drop_claim(e, e->parts->plain); /* it is lost */
    atomic_store_explicit(&e->owner, NULL, memory_order_relaxed);
    if (e->parts) STORE_RACING(e->parts->thread, NULL);
  }
  if (thread) atomic_store_explicit(&thread->spare, kept, memory_order_relaxed);
}

void scopes_bury_others(void) {
  own.free = NULL;
  for (struct thread *t = atomic_load_explicit(&all_threads, memory_order_acquire); t; t = t->next) {
    if (t == current_thread) continue;
    spare_give_up(t, true); /* unless it was being used just then */
    bury_thread(t);
    free_thread(t);
  }
  for (uint32_t i = 1; i <= lifetimes_made(); i++) bury_parts(epoch_at(i));
  keep_one_spare(current_thread);
}

static void forget_spares(void) {
  for (uint32_t i = 1; i <= lifetimes_made(); i++) {
    struct epoch *e = epoch_at(i);
    if (epoch_state(e) != EPOCH_SPARE) continue;
    atomic_store_explicit(&e->owner, NULL, memory_order_relaxed);
    if (e->parts) STORE_RACING(e->parts->thread, NULL);
  }
}

void scopes_freeze(bool knows_its_thread) {
  own.free = NULL;
  own.cuttings = (struct cuttings){NULL, NULL};
  attach_freeze();
  for (struct thread *t = atomic_load_explicit(&all_threads, memory_order_acquire); t; t = t->next) {
    atomic_store_explicit(&t->spare, NULL, memory_order_relaxed);
    if (knows_its_thread && t != current_thread) bury_thread(t);
  }
  forget_spares();
  if (!knows_its_thread) return;
  for (uint32_t i = 1; i <= lifetimes_made(); i++) bury_parts(epoch_at(i));
}
