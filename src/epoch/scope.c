/* scope: see scope.h.                                                                                floor: epoch */
#include "epoch/scope.h"

#include "epoch/cache.h"
#include "epoch/close.h"
#include "epoch/exempt.h"
#include "epoch/finish.h"
#include "heap/bump.h"
#include "heap/chunk_cache.h"
#include "heap/fast.h"
#include "os/os.h"
#include <errno.h>

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct thread *thread_acquire(struct heap *heap) {
  struct thread *thread = heap_room_for_thread(heap);
  thread->plain = heap;
  atomic_store_explicit(&heap->store->chunks.attached, 0, memory_order_relaxed);
  thread->depth = 0;
  thread->advanced = 0;
  thread->visiting = false;
  thread->exempt = NULL;
  thread->scopes[0] = (struct scope){0, NULL};
  for (unsigned i = 0; i < NAMED; i++) thread->named[i] = NAMED_NONE(i);
  attach_start(&thread->attached);
  return thread;
}

static void leave(struct heap *heap, uint64_t id);

static void leave_all(struct thread *thread) {
  if (thread->exempt) exempt_end(thread);
  for (;; thread->depth--) {
    struct scope *scope = &thread->scopes[thread->depth];
    if (scope->heap) leave(scope->heap, scope->id);
    *scope = (struct scope){0, NULL};
    if (thread->depth == 0) return;
  }
}

/* Detaches the thread's heap from the epoch, if it still is attached. If the scavenger has taken a cached epoch, the
 * scavenger detaches it; this returns false until it has. */
static bool forget_attached(const struct thread *thread, struct epoch *e, struct heap *heap) {
  if (!attach_is_valid(heap, thread, e)) return true;
  struct lock *gate = epoch_take(e);
  bool is_mine = attach_is_valid(heap, thread, e); /* the heap may belong to another epoch by now */
  if (is_mine && epoch_state(e) != EPOCH_CACHED) {
    attach_drop(e, heap);
    is_mine = false;
  }
  bool ended = epoch_finish_locked(e);
  epoch_release(e, gate);
  if (ended) epoch_retire(e);
  return !is_mine;
}

static void forget_all_attached(const struct thread *thread) {
  const struct attachments *table = &thread->attached;
  for (uint32_t i = 0; i < (uint32_t)1 << table->log; i++) {
    const struct attachment *entry = &table->entries[i];
    while (entry->slot != 0 && !forget_attached(thread, epoch_at(entry->slot), entry->heap)) os_rest();
  }
}

void thread_release(struct thread *thread) {
  current_heap = thread->plain; /* a heap that the thread leaves may end at once, by this thread or another one */
  leave_all(thread);
  epoch_cache_give_up(thread, false);
  forget_all_attached(thread);
  attach_end(&thread->attached);
  chunk_cache_end(thread->plain);
}

/* ---- inside ------------------------------------------------------------------------------------------------------ */

void scope_set_looking_fenced(struct thread *thread, uint64_t id) {
  atomic_exchange_explicit(&thread->looking, id, memory_order_seq_cst);
}

/* Called while the thread does not look: it has no heap of the epoch, or another thread ends the epoch or resets it. */
static COLD struct heap *hold_slow(struct thread *thread, uint64_t id, int *error) {
  struct epoch *e = epoch_slot(id);
  struct heap *heap = NULL;
  if ((*error = epoch_error(e, id)) != 0) return NULL;
  inside_decide_barrier();
  *error = ENOMEM;
  if (!attach_make_room(&thread->attached, thread)) return NULL;
  epoch_lock(e);
  int closed = epoch_error(e, id);
  if (closed) {
    *error = closed;
  } else {
    heap = scope_find(thread, e); /* there is one if a reset was under way */
    if (!heap) heap = attach_heap(thread, e);
    if (heap) scope_stay(thread, heap);
  }
  epoch_unlock(e);
  return heap;
}

struct heap *scope_hold(struct thread *thread, uint64_t id, int *error) {
  struct epoch *e = epoch_slot(id);
  if (LIKELY(e != NULL)) {
    struct heap *heap = scope_look(thread, e, id);
    if (LIKELY(heap != NULL)) {
      scope_stay(thread, heap);
      return heap;
    }
    scope_look_away(thread, e, id);
  }
  return hold_slow(thread, id, error);
}

void scope_was_seen(struct epoch *e, uint64_t id) {
  if (epoch_id(e) == id) epoch_after_leave(e, id);
}

static void set_entered(struct heap *heap, uint32_t entered) {
  if (inside_is_one_sided()) scope_store_entered(heap, entered);
  else atomic_exchange_explicit(&heap->bump.entered, entered, memory_order_seq_cst);
}

/* Once the thread is outside, its heap may serve another thread. */
INLINE void let_go(struct epoch *e, struct heap *heap, uint64_t id) {
  uint32_t entered = atomic_load_explicit(&heap->bump.entered, memory_order_relaxed) - 1;
  set_entered(heap, entered);
  /* Another thread that left meanwhile saw this one inside, and relies on it to complete the close. */
  if (entered == 0 && UNLIKELY(scope_open_id(e) != id || scope_has_ended(e))) epoch_after_leave(e, id);
}

static struct epoch *epoch_of(const struct heap *heap) { return (struct epoch *)(void *)heap->arena; }

void scope_let_go(struct heap *heap, uint64_t id) { let_go(epoch_of(heap), heap, id); }

/* Ends a scope, for which an epoch that closes by itself may be waiting. */
static void leave(struct heap *heap, uint64_t id) {
  struct epoch *e = epoch_of(heap);
  if (UNLIKELY(e->flags & TSLAB_EPOCH_AUTO_CLOSE)) atomic_store_explicit(&e->scope_ended, true, memory_order_seq_cst);
  let_go(e, heap, id);
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

/* Makes the innermost scope's heap the thread's. `is_new` says that the thread entered this scope just now. */
INLINE void make_current(struct thread *thread, bool is_new) {
  struct heap *heap = thread->scopes[thread->depth].heap;
  if (UNLIKELY(thread->exempt != NULL)) exempt_end(thread);
  current_heap = heap ? heap : thread->plain;
  if (!heap && thread->depth != 0) exempt_begin(thread, is_new);
}

int scope_enter(struct thread *thread, uint64_t id) {
  struct heap *heap = NULL;
  int error;
  if (UNLIKELY(thread->depth == TSLAB_SCOPES)) return EOVERFLOW;
  if (id != 0 && !(heap = scope_hold(thread, id, &error))) return error;
  thread->scopes[++thread->depth] = (struct scope){id, heap};
  make_current(thread, true);
  return 0;
}

int scope_leave(struct thread *thread, uint64_t id) {
  struct scope left = thread->scopes[thread->depth];
  if (UNLIKELY(thread->depth == 0 || left.id != id)) return EINVAL;
  thread->depth--;
  make_current(thread, false);
  if (left.heap) leave(left.heap, id);
  return 0;
}

int scope_switch(struct thread *thread, uint64_t id) {
  struct scope *scope = &thread->scopes[thread->depth], before = *scope;
  struct heap *heap = NULL;
  int error;
  if (id != 0 && !(heap = scope_hold(thread, id, &error))) return error;
  *scope = (struct scope){id, heap};
  make_current(thread, true);
  if (before.heap) leave(before.heap, before.id);
  return 0;
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

/* Detaches the heaps of threads that do not exist in the child. Such a thread is not inside, but may have been filling
 * a chunk. */
static void retire_heaps(struct epoch *e) {
  const struct thread *owner = atomic_load_explicit(&e->owner, memory_order_relaxed);
  if (owner && owner != current_thread) atomic_store_explicit(&e->owner, NULL, memory_order_relaxed);
  bool descends = e->descending;
  e->descending = true; /* it does not end under this walk; epochs_close_on looks again */
  bool has_orphans = false;
  for (const struct heap *p = e->heaps; p; p = p->next_of_epoch) has_orphans |= !p->thread;
  if (has_orphans) bump_seal_orphans(&e->arena); /* one walk, however many heaps there are */
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) {
    if (p->thread) continue;
    atomic_store_explicit(&p->bump.entered, 0, memory_order_relaxed);
    bump_orphan(p);
  }
  e->descending = descends;
}

/* The thread's table may be half built, so the next thread gets a new one. */
static void retire_thread(struct thread *thread) {
  atomic_store_explicit(&thread->looking, 0, memory_order_relaxed);
  attach_start(&thread->attached);
}

static bool is_cached_of(const struct epoch *e, const struct thread *thread) {
  return epoch_state(e) == EPOCH_CACHED && e->heaps && e->heaps->thread == thread;
}

/* The scavenger, or a thread that does not exist in the child, may have taken cached epochs. This thread gets one of
 * its own back; the others are lost to the child. */
static void keep_one_empty(struct thread *thread) {
  struct epoch *kept = NULL;
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    struct epoch *e = epoch_at(i);
    if (epoch_state(e) != EPOCH_CACHED) continue;
    if (!kept && thread && is_cached_of(e, thread)) {
      kept = e;
      continue;
    }
    if (e->heaps) epoch_cache_drop_claim(e, e->heaps->plain); /* the epoch is lost */
    atomic_store_explicit(&e->owner, NULL, memory_order_relaxed);
    if (e->heaps) STORE_RACING(e->heaps->thread, NULL);
  }
  if (thread) atomic_store_explicit(&thread->cached_epoch, kept, memory_order_relaxed);
}

void scopes_retire_others(void) {
  for (struct heap *p = heaps_first_of_threads(); p; p = heaps_next_of_threads(p)) { /* the child has one thread */
    struct thread *t = heap_room_for_thread(p);
    epoch_cache_after_fork(t);
    if (t == current_thread) continue;
    epoch_cache_give_up(t, true); /* does nothing if the epoch was in use at the fork */
    retire_thread(t);
  }
  for (uint32_t i = 1; i <= arenas_made(); i++) retire_heaps(epoch_at(i));
  keep_one_empty(current_thread);
}

static void forget_cached_epochs(void) {
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    struct epoch *e = epoch_at(i);
    if (epoch_state(e) != EPOCH_CACHED) continue;
    atomic_store_explicit(&e->owner, NULL, memory_order_relaxed);
    if (e->heaps) STORE_RACING(e->heaps->thread, NULL);
  }
}

void scopes_freeze(bool knows_its_thread) {
  attach_freeze();
  for (struct heap *p = atomic_load_explicit(&all_heaps, memory_order_acquire); p; p = p->next_heap) {
    struct thread *t = thread_of_plain(p);
    if (!t) continue;
    epoch_cache_after_fork(t);
    atomic_store_explicit(&t->cached_epoch, NULL, memory_order_relaxed);
    if (knows_its_thread && t != current_thread) retire_thread(t);
  }
  forget_cached_epochs();
  if (!knows_its_thread) return;
  for (uint32_t i = 1; i <= arenas_made(); i++) retire_heaps(epoch_at(i));
}
