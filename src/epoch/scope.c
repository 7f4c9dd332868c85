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

struct lock threads_lock;

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
  thread->recent = thread->before = &thread->attached[0];
  thread->depth = 0;
  thread->advanced = 0;
  thread->visiting = false;
  thread->scopes[0] = (struct scope){0, NULL};
  return thread;
}

static void leave(struct attached *a);

static void leave_all(struct thread *thread) {
  for (;; thread->depth--) {
    struct scope *scope = &thread->scopes[thread->depth];
    if (scope->attached) leave(scope->attached);
    *scope = (struct scope){0, NULL};
    if (thread->depth == 0) return;
  }
}

static void forget_attached(struct attached *a) {
  struct epoch *e = a->epoch;
  uint64_t id = atomic_load_explicit(&a->id, memory_order_relaxed);
  struct lock *gate = epoch_take(e);
  if (epoch_id(e) == id && LOAD_RACING(a->part->attached) == a) /* it may be another epoch's by now */
    scope_detach(e, a->part);
  ending_finish_if_done(e, gate);
  atomic_store_explicit(&a->id, 0, memory_order_relaxed);
}

void thread_release(struct thread *thread) {
  leave_all(thread);
  spare_give_up(thread, false);
  for (unsigned i = 0; i < thread->attached_count; i++) {
    struct attached *a = &thread->attached[i];
    while (atomic_load_explicit(&a->id, memory_order_acquire) == ATTACHED_SPARE) os_rest(); /* the scavenger ends it */
    if (atomic_load_explicit(&a->id, memory_order_acquire) != 0) forget_attached(a);
  }
  thread->attached_count = 0;
  chunk_cache_end(thread->home);
  lock_take(&threads_lock);
  thread->next_free = own.free;
  own.free = thread;
  lock_release(&threads_lock);
}

/* ---- the two sides of a barrier ---------------------------------------------------------------------------------- */

/* Whether the barrier is all the other side's. Decided at the first attachment, before anybody could be inside. */
enum { UNKNOWN, ONE_SIDED, TWO_SIDED };
static _Atomic int barrier;

#if defined(__SANITIZE_THREAD__)
static bool barrier_everywhere(void) { return false; } /* the detector does not know of the system call */
#else
static bool barrier_everywhere(void) { return os_barrier_everywhere(); }
#endif

static void decide_barrier(void) {
  if (atomic_load_explicit(&barrier, memory_order_relaxed) != UNKNOWN) return;
  bool everywhere = barrier_everywhere();
  int unknown = UNKNOWN;
  atomic_compare_exchange_strong(&barrier, &unknown, everywhere ? ONE_SIDED : TWO_SIDED);
}

static bool is_one_sided(void) { return LIKELY(atomic_load_explicit(&barrier, memory_order_relaxed) == ONE_SIDED); }

INLINE void set_entered(struct attached *a, uint32_t entered) {
  if (is_one_sided()) {
    atomic_store_explicit(&a->entered, entered, memory_order_release); /* pairs with scope_is_inside */
    atomic_signal_fence(memory_order_seq_cst);
  } else {
    atomic_exchange_explicit(&a->entered, entered, memory_order_seq_cst);
  }
}

static uint64_t open_id_of(const struct epoch *e) {
  return atomic_load_explicit(&e->open_id, is_one_sided() ? memory_order_acquire : memory_order_seq_cst);
}

static bool has_left(const struct epoch *e) {
  return atomic_load_explicit(&e->left, is_one_sided() ? memory_order_relaxed : memory_order_seq_cst);
}

void scope_shut(struct epoch *e) {
  atomic_exchange_explicit(&e->open_id, 0, memory_order_seq_cst);
  for (struct part *p = e->parts; p; p = p->next_of_epoch) {
    if (!p->attached || p->thread == current_thread) continue;
    if (is_one_sided()) os_barrier_everywhere();
    else FENCE_ALL(); /* an exchange is less than that on arm64: what is looked at next could be looked at before */
    return;
  }
}

unsigned scope_threads_inside(const struct epoch *e) {
  unsigned inside = 0;
  for (struct part *p = e->parts; p; p = p->next_of_epoch) inside += scope_is_inside(p);
  return inside;
}

/* ---- attaching --------------------------------------------------------------------------------------------------- */

/* What is left of epochs that ended goes first, and costs nothing. */
static void evict_oldest(struct thread *thread) {
  struct attached *oldest = NULL;
  unsigned idle = 0;
  for (unsigned i = 0; i < thread->attached_count; i++) {
    struct attached *a = &thread->attached[i];
    uint64_t id = atomic_load_explicit(&a->id, memory_order_relaxed);
    if (id == 0 || id == ATTACHED_SPARE || atomic_load_explicit(&a->entered, memory_order_relaxed) != 0) continue;
    if (epoch_error(a->epoch, id) == ESTALE) {
      atomic_store_explicit(&a->id, 0, memory_order_relaxed);
      continue;
    }
    idle++;
    if (!oldest || thread->clock - a->last_used > thread->clock - oldest->last_used) oldest = a;
  }
  if (idle >= ATTACHED_IDLE) forget_attached(oldest);
}

static struct attached *unused_entry(struct thread *thread) {
  unsigned i = 0;
  while (i < thread->attached_count && atomic_load_explicit(&thread->attached[i].id, memory_order_acquire) != 0) i++;
  INVARIANT(0, i < ATTACHED_MOST);
  if (i == thread->attached_count) thread->attached_count++;
  return &thread->attached[i];
}

/* A part that another thread left, so that its slabs are used up before new ones are made. */
static struct part *waiting_part(struct epoch *e) {
  for (struct part *p = e->parts; p; p = p->next_of_epoch) {
    if (p->attached) continue;
    lock_take(&p->lock); /* who flushes a part that serves nobody holds it */
    p->live = true;
    p->thread = current_thread;
    p->tally = current_part->tally;
    p->plain = current_part->plain;
    lock_release(&p->lock);
    return p;
  }
  return NULL;
}

struct attached *scope_attach(struct thread *thread, struct epoch *e, uint64_t id) {
  struct part *part = waiting_part(e);
  if (!part) {
    part = part_take_blank(&e->lifetime);
    if (!part) return NULL;
    bump_start(part);
    part->next_of_epoch = e->parts;
    STORE_RACING(e->parts, part);
  }
  struct attached *a = unused_entry(thread);
  a->part = part;
  a->epoch = e;
  a->last_used = ++thread->clock;
  atomic_store_explicit(&a->entered, 0, memory_order_relaxed);
  atomic_store_explicit(&a->id, id, memory_order_relaxed);
  STORE_RACING(part->attached, a);
  return a;
}

void scope_detach(struct epoch *e, struct part *part) {
  if (part_has_slabs(part) && part->thread == current_thread && !part->closing) heap_rest(part);
  bump_leave(part, true);
  STORE_RACING(part->attached, NULL);
  if (part_has_slabs(part)) {
    lock_take(&part->lock);
    part->live = false;
    part->thread = NULL;
    lock_release(&part->lock);
    return;
  }
  STORE_RACING(e->allocations, e->allocations + list_handed_out(part) - part->before);
  for (struct part **link = &e->parts;; link = &(*link)->next_of_epoch)
    if (*link == part) {
      STORE_RACING(*link, part->next_of_epoch);
      break;
    }
  part_give_back(part);
}

static COLD struct attached *hold_slow(struct thread *thread, uint64_t id, int *error) {
  struct epoch *e = epoch_slot(id);
  if ((*error = epoch_error(e, id)) != 0) return NULL;
  decide_barrier();
  evict_oldest(thread);
  struct attached *a = NULL;
  epoch_lock(e);
  if ((*error = epoch_error(e, id)) == 0) {
    for (struct part *p = e->parts; p && !a; p = p->next_of_epoch)
      if (p->attached && p->thread == thread) a = p->attached; /* a reset was on its way when we looked */
    if (!a) a = scope_attach(thread, e, id);
    if (a) set_entered(a, atomic_load_explicit(&a->entered, memory_order_relaxed) + 1);
    else *error = ENOMEM;
  }
  epoch_unlock(e);
  if (a) thread->recent = a;
  return a;
}

/* NULL when the thread has no part of the epoch. */
static NOINLINE struct attached *find(struct thread *thread, uint64_t id) {
  struct attached *a = thread->before, *end = &thread->attached[thread->attached_count];
  if (atomic_load_explicit(&a->id, memory_order_relaxed) != id)
    for (a = thread->attached; a < end && atomic_load_explicit(&a->id, memory_order_relaxed) != id; a++) {}
  if (a == end) return NULL;
  thread->before = thread->recent;
  thread->recent = a;
  a->last_used = ++thread->clock;
  return a;
}

struct attached *scope_hold(struct thread *thread, uint64_t id, int *error) {
  struct attached *a = thread->recent;
  if (UNLIKELY(atomic_load_explicit(&a->id, memory_order_relaxed) != id) && !(a = find(thread, id)))
    return hold_slow(thread, id, error);
  set_entered(a, atomic_load_explicit(&a->entered, memory_order_relaxed) + 1);
  if (LIKELY(open_id_of(a->epoch) == id)) return a;
  scope_let_go(a);
  return hold_slow(thread, id, error);
}

/* Whether the thread is now outside. */
static bool let_go(struct attached *a) {
  uint32_t entered = atomic_load_explicit(&a->entered, memory_order_relaxed) - 1;
  set_entered(a, entered);
  return entered == 0;
}

void scope_let_go(struct attached *a) {
  uint64_t id = atomic_load_explicit(&a->id, memory_order_relaxed);
  struct epoch *e = a->epoch;
  /* Who left last meanwhile saw us inside, and relies on us to see that it left. */
  if (let_go(a) && UNLIKELY(open_id_of(e) != id || has_left(e))) ending_left(e, id);
}

/* The same at a scope's end, which an epoch may be waiting for. */
static void leave(struct attached *a) {
  uint64_t id = atomic_load_explicit(&a->id, memory_order_relaxed);
  struct epoch *e = a->epoch;
  if (UNLIKELY(e->flags & TSLAB_EPOCH_AUTO_CLOSE)) atomic_store_explicit(&e->left, true, memory_order_seq_cst);
  if (let_go(a) && UNLIKELY(open_id_of(e) != id || has_left(e))) ending_left(e, id);
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

static void make_current(struct thread *thread) {
  const struct scope *scope = &thread->scopes[thread->depth];
  current_part = scope->attached ? scope->attached->part : thread->home;
}

int scope_enter(struct thread *thread, uint64_t id) {
  struct attached *a = NULL;
  int error;
  if (UNLIKELY(thread->depth == TSLAB_SCOPES)) return EOVERFLOW;
  if (id != 0 && !(a = scope_hold(thread, id, &error))) return error;
  thread->scopes[++thread->depth] = (struct scope){id, a};
  make_current(thread);
  return 0;
}

int scope_leave(struct thread *thread, uint64_t id) {
  struct scope left = thread->scopes[thread->depth];
  if (UNLIKELY(thread->depth == 0 || left.id != id)) return EINVAL;
  thread->depth--;
  make_current(thread);
  if (left.attached) leave(left.attached);
  return 0;
}

int scope_switch(struct thread *thread, uint64_t id) {
  struct scope *scope = &thread->scopes[thread->depth];
  struct attached *a = NULL, *before = scope->attached;
  int error;
  if (id != 0 && !(a = scope_hold(thread, id, &error))) return error;
  *scope = (struct scope){id, a};
  make_current(thread);
  if (before) leave(before);
  return 0;
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

static void free_thread(struct thread *thread) {
  thread->next_free = own.free;
  own.free = thread;
}

/* What the thread was inside of, nobody is any more. Its spare ends, unless it was being used just then. */
static void bury_thread(struct thread *thread) {
  spare_give_up(thread, true);
  for (unsigned i = 0; i < thread->attached_count; i++) {
    struct attached *a = &thread->attached[i];
    atomic_store_explicit(&a->entered, 0, memory_order_relaxed);
    uint64_t id = atomic_load_explicit(&a->id, memory_order_relaxed);
    if (id == ATTACHED_SPARE) spare_drop_claim(a->epoch, a->part->plain);
    if (id == 0 || a->part->attached != a) continue;
    bump_forsake(a->part);
    a->part->attached = NULL;
  }
  thread->attached_count = 0;
}

/* Spares that the scavenger had in its hands: one is the thread's again, more are lost to the child. */
static void keep_one_spare(struct thread *thread) {
  struct epoch *kept = NULL;
  for (unsigned i = 0; i < thread->attached_count; i++) {
    struct attached *a = &thread->attached[i];
    if (atomic_load_explicit(&a->id, memory_order_relaxed) != ATTACHED_SPARE) continue;
    if (!kept) {
      kept = a->epoch;
      continue;
    }
    spare_drop_claim(a->epoch, a->part->plain); /* it is lost */
    STORE_RACING(a->part->attached, NULL);
    atomic_store_explicit(&a->id, 0, memory_order_relaxed);
  }
  atomic_store_explicit(&thread->spare, kept, memory_order_relaxed);
}

void scopes_bury_others(void) {
  own.free = NULL;
  for (struct thread *t = atomic_load_explicit(&all_threads, memory_order_acquire); t; t = t->next) {
    if (t == current_thread) continue;
    bury_thread(t);
    free_thread(t);
  }
  if (current_thread) keep_one_spare(current_thread);
}

static void forget_spare(struct thread *thread) {
  atomic_store_explicit(&thread->spare, NULL, memory_order_relaxed);
  for (unsigned i = 0; i < thread->attached_count; i++) {
    struct attached *a = &thread->attached[i];
    if (atomic_load_explicit(&a->id, memory_order_relaxed) != ATTACHED_SPARE) continue;
    STORE_RACING(a->part->attached, NULL);
    atomic_store_explicit(&a->id, 0, memory_order_relaxed);
  }
}

void scopes_freeze(bool knows_its_thread) {
  own.free = NULL;
  own.cuttings = (struct cuttings){NULL, NULL};
  for (struct thread *t = atomic_load_explicit(&all_threads, memory_order_acquire); t; t = t->next) {
    forget_spare(t);
    if (knows_its_thread && t != current_thread) bury_thread(t);
  }
}
