/* scope: decides which epoch a thread's malloc allocates in.                                         floor: epoch
 *
 *   id -> epoch's slot: open_id == id ?  owner == thread ?  -> the first of its heaps -> current_heap
 *                                        else the thread's table (epoch/attach.h)
 *
 * A thread's heap of an epoch stays attached until the epoch or the thread ends. So entering an epoch again costs the
 * same, however many other epochs the thread enters. Enter and leave write only the thread's own words; epoch/inside.h
 * says how the thread that ends the epoch sees them:
 *
 *   enter -> scope_look -> scope_stay           (miss) -> scope_look_away -> hold_slow -> attach_heap
 *   leave -> let_go                             (the epoch has ended, or waits for this) -> epoch_after_leave
 *
 * scope_enter_at_once and scope_leave_at_once do the usual case in half the instructions.
 *
 * Threads: a thread calls these for itself. thread_release is the last call for a thread. */
#ifndef TSLAB_EPOCH_SCOPE_H
#define TSLAB_EPOCH_SCOPE_H

#include "epoch/inside.h"

/* thread_acquire begins a thread, at its first slow path; thread_release ends it. */
HIDDEN struct thread *thread_acquire(struct heap *heap); /* of epoch 0 */
HIDDEN void thread_release(struct thread *thread);

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* Enough if the barrier is one-sided. */
INLINE void scope_store_looking(struct thread *thread, uint64_t id) {
  atomic_store_explicit(&thread->looking, id, memory_order_release); /* pairs with inside_is_busy */
  atomic_signal_fence(memory_order_seq_cst);
}

HIDDEN COLD void scope_set_looking_fenced(struct thread *thread, uint64_t id);
INLINE void scope_set_looking(struct thread *thread, uint64_t id) {
  if (inside_is_one_sided()) scope_store_looking(thread, id);
  else scope_set_looking_fenced(thread, id);
}

INLINE uint64_t scope_open_id(const struct epoch *e) {
  return atomic_load_explicit(&e->open_id, inside_is_one_sided() ? memory_order_acquire : memory_order_seq_cst);
}

INLINE bool scope_has_ended(const struct epoch *e) {
  return atomic_load_explicit(&e->scope_ended, inside_is_one_sided() ? memory_order_relaxed : memory_order_seq_cst);
}

/* Returns the thread's heap of the epoch at which it looks, or NULL. */
INLINE struct heap *scope_find(const struct thread *thread, const struct epoch *e) {
  if (LIKELY(atomic_load_explicit(&e->owner, memory_order_relaxed) == thread)) return LOAD_RACING(e->heaps);
  struct heap *heap = attach_find(&thread->attached, e->arena.index);
  return heap && attach_is_valid(heap, thread, e) ? heap : NULL;
}

/* Returns the thread's heap of the open epoch with that id, which no thread detaches until scope_look_away, or NULL if
 * there is none. The caller then calls scope_look_away, or scope_stay if it has a heap, and takes no lock in
 * between. */
INLINE struct heap *scope_look(struct thread *thread, const struct epoch *e, uint64_t id) {
  scope_set_looking(thread, id);
  return LIKELY(scope_open_id(e) == id) ? scope_find(thread, e) : NULL;
}

HIDDEN COLD void scope_was_seen(struct epoch *e, uint64_t id);
INLINE void scope_look_away(struct thread *thread, struct epoch *e, uint64_t id) {
  scope_set_looking(thread, 0);
  /* A thread that ended the epoch meanwhile, or left it last, may have seen this one and left the rest to it. */
  if (UNLIKELY(scope_open_id(e) != id || scope_has_ended(e))) scope_was_seen(e, id);
}

/* Enough if the barrier is one-sided. */
INLINE void scope_store_entered(struct heap *heap, uint32_t entered) {
  atomic_store_explicit(&heap->bump.entered, entered, memory_order_release); /* pairs with inside_is_busy */
  atomic_signal_fence(memory_order_seq_cst);
}

/* Turns a look into a stay: counts the thread in once more and ends its look. */
INLINE void scope_stay(struct thread *thread, struct heap *heap) {
  uint32_t entered = atomic_load_explicit(&heap->bump.entered, memory_order_relaxed) + 1;
  /* This store and the next one pair with inside_is_busy. */
  atomic_store_explicit(&heap->bump.entered, entered, memory_order_release);
  atomic_store_explicit(&thread->looking, 0, memory_order_release);
}

/* A look at an epoch that a call named before, in a few instructions. It works if the barrier is one-sided and the
 * epoch does not close by itself. scope_look_named returns true if the epoch is open. If scope_look_away_named returns
 * false, the caller calls scope_was_seen. */
INLINE struct named *scope_named(struct thread *thread, uint64_t id_or_slot) {
  return &thread->named[id_or_slot % NAMED];
}
INLINE bool scope_look_named(struct thread *thread, const struct named *named) {
  scope_store_looking(thread, named->id);
  return atomic_load_explicit(&named->epoch->open_id, memory_order_acquire) == named->id;
}
INLINE bool scope_look_away_named(struct thread *thread, const struct named *named) {
  scope_store_looking(thread, 0);
  return atomic_load_explicit(&named->epoch->open_id, memory_order_acquire) == named->id;
}
INLINE void scope_learn(struct thread *thread, struct epoch *e, uint64_t id, struct heap *heap) {
  if (inside_is_one_sided() && !(LOAD_RACING(e->flags) & TSLAB_EPOCH_AUTO_CLOSE))
    *scope_named(thread, id) = (struct named){id, e, heap, e->arena.index};
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

/* scope_hold counts the thread in once more and returns its heap of the epoch, or NULL and *error: ESTALE, ESHUTDOWN,
 * ENOMEM. scope_let_go ends that. */
HIDDEN struct heap *scope_hold(struct thread *thread, uint64_t id, int *error);
HIDDEN void scope_let_go(struct heap *heap, uint64_t id);

HIDDEN int scope_enter(struct thread *thread, uint64_t id);
HIDDEN int scope_leave(struct thread *thread, uint64_t id);
HIDDEN int scope_switch(struct thread *thread, uint64_t id); /* changes the innermost scope's epoch */

/* scope_enter of an epoch that the thread entered before. If this returns false, the caller calls scope_enter, which
 * looks again. */
INLINE bool scope_enter_at_once(struct thread *thread, uint64_t id) {
  struct epoch *e = epoch_slot(id);
  if (UNLIKELY(!e || !inside_is_one_sided() || thread->exempt || thread->depth == TSLAB_SCOPES)) return false;
  scope_store_looking(thread, id);
  if (UNLIKELY(atomic_load_explicit(&e->open_id, memory_order_acquire) != id)) return false;
  struct heap *heap = scope_find(thread, e);
  if (UNLIKELY(!heap)) return false;
  scope_stay(thread, heap);
  thread->scopes[++thread->depth] = (struct scope){id, heap};
  current_heap = heap;
  return true;
}

/* scope_leave of an epoch that does not close by itself. If this returns false, nothing happened. */
INLINE bool scope_leave_at_once(struct thread *thread, uint64_t id) {
  unsigned depth = thread->depth;
  const struct scope *left = &thread->scopes[depth];
  struct heap *heap = left->heap;
  if (UNLIKELY(depth == 0 || left->id != id || !heap || thread->exempt || !inside_is_one_sided())) return false;
  struct epoch *e = (struct epoch *)(void *)heap->arena;
  struct heap *outer = thread->scopes[depth - 1].heap;
  if (UNLIKELY((!outer && depth != 1) || e->flags & TSLAB_EPOCH_AUTO_CLOSE)) return false;
  thread->depth = depth - 1;
  current_heap = outer ? outer : thread->plain;
  uint32_t entered = atomic_load_explicit(&heap->bump.entered, memory_order_relaxed) - 1;
  scope_store_entered(heap, entered);
  if (LIKELY(atomic_load_explicit(&e->open_id, memory_order_acquire) == id) || entered != 0) return true;
  scope_was_seen(e, id);
  return true;
}

INLINE bool scope_is_in_any(const struct thread *thread) {
  return thread->depth != 0 || thread->scopes[0].heap != NULL;
}
INLINE uint64_t scope_current(const struct thread *thread) { return thread->scopes[thread->depth].id; }

/* For a fork child, after heap_retire_others or heap_freeze. */
HIDDEN void scopes_retire_others(void);
HIDDEN void scopes_freeze(bool knows_its_thread);

#endif
