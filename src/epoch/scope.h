/* scope: which epoch a thread's malloc goes to.                                                     floor: epoch
 *
 *   id -> epoch's slot: open_id == id ?  owner == thread ?  -> the first of its heaps -> current_heap
 *                                        else the thread's table (epoch/attach.h)
 *
 * A thread's heap of an epoch stays attached until the epoch or the thread ends, so that to enter an epoch again costs
 * the same however many others the thread enters. Enter and leave write only what is the thread's own:
 *
 *   enter:  looking = id   | barrier |  open_id == id ?            ending:  open_id = 0  | barrier |  looking == id ?
 *           entered++, looking = 0                                                                    entered == 0 ?
 *   leave:  entered--      | barrier |  open_id == id ?
 *
 * One of the two sees the other. The barrier of the right side is one on all threads, where the kernel offers that;
 * then the left one costs nothing. Else both are full fences. `looking` comes first because a heap may be detached, and
 * serve another thread, until its thread is known to be inside: a thread writes to no heap before that. Who ends the
 * epoch looks at the two in the order in which they are written.
 *
 * A call that only allocates or frees one block need not enter: it is inside as long as it is looking.
 *
 * Invariant: an epoch's owner is the thread of the first of its heaps, or NULL.                         scope_check()
 * Threads: everything in struct thread belongs to its thread, but: `looking` and a heap's `entered` are read by others,
 * and who holds an epoch's lock may detach a heap whose thread is not inside; cached epoch is atomic. */
#ifndef TSLAB_EPOCH_SCOPE_H
#define TSLAB_EPOCH_SCOPE_H

#include "epoch/attach.h"
#include "epoch/epoch.h"

struct scope {
  uint64_t id;
  struct heap *heap; /* NULL: epoch 0 */
};

/* An epoch that a call named, which no longer has to be looked up: the thread has this part of it as long as it is open
 * with that id. */
struct named {
  uint64_t id;
  struct epoch *epoch;
  struct heap *heap;
  uint32_t slot; /* the epoch's index */
};
#define NAMED 4 /* found by the id's low bits */
#define NAMED_NONE(place) ((struct named){(place) == 0, NULL, NULL, UINT32_MAX}) /* an id of another place */

struct thread {
  struct heap *plain; /* of epoch 0 */
  _Atomic uint64_t looking; /* the epoch that it may be inside of, whatever `entered` says; 0: none */
  unsigned depth;
  bool visiting;     /* current_heap is no scope's, but that of one call that names its epoch */
  uint64_t advanced; /* what tslab_epoch_advance opened last; 0: nothing */
  struct epoch *_Atomic cached_epoch;
  uint64_t cached_seen; /* its id when the scavenger looked last, and */
  uint8_t cached_age;   /* how many looks ago it was so first */
  struct thread *next_free;
  struct thread *next; /* every thread ever made */
  struct named named[NAMED];
  struct scope scopes[TSLAB_SCOPES + 1]; /* [0]: outside all scopes */
  struct attachments attached;
};

/* A thread's birth, at its first slow path, and death. NULL without memory. */
HIDDEN struct thread *thread_acquire(struct heap *heap); /* of epoch 0 */
HIDDEN void thread_release(struct thread *thread);
HIDDEN extern struct thread *_Atomic all_threads;

/* ---- the thread's side of the barrier ---------------------------------------------------------------------------- */

/* Says whether only the side that ends an epoch executes a barrier. The first attachment decides it, before any thread
 * could be inside. */
enum { BARRIER_UNKNOWN, BARRIER_ONE_SIDED, BARRIER_TWO_SIDED };
HIDDEN extern _Atomic int scope_barrier;
INLINE bool scope_is_one_sided(void) {
  return LIKELY(atomic_load_explicit(&scope_barrier, memory_order_relaxed) == BARRIER_ONE_SIDED);
}

HIDDEN COLD void scope_set_looking_fenced(struct thread *thread, uint64_t id);
INLINE void scope_set_looking(struct thread *thread, uint64_t id) {
  if (scope_is_one_sided()) {
    atomic_store_explicit(&thread->looking, id, memory_order_release); /* pairs with scope_is_inside */
    atomic_signal_fence(memory_order_seq_cst);
  } else {
    scope_set_looking_fenced(thread, id);
  }
}

INLINE uint64_t scope_open_id(const struct epoch *e) {
  return atomic_load_explicit(&e->open_id, scope_is_one_sided() ? memory_order_acquire : memory_order_seq_cst);
}

INLINE bool scope_has_ended(const struct epoch *e) {
  return atomic_load_explicit(&e->scope_ended, scope_is_one_sided() ? memory_order_relaxed : memory_order_seq_cst);
}

HIDDEN struct heap *scope_find_shared(const struct thread *thread, const struct epoch *e);

/* The thread's part of the epoch with that id, which is open and will not be detached until scope_look_away. NULL when
 * there is none: then scope_look_away comes next, too. No call in between, but to what takes no lock. */
INLINE struct heap *scope_look(struct thread *thread, const struct epoch *e, uint64_t id) {
  scope_set_looking(thread, id);
  if (UNLIKELY(scope_open_id(e) != id)) return NULL;
  if (LIKELY(atomic_load_explicit(&e->owner, memory_order_relaxed) == thread)) return LOAD_RACING(e->heaps);
  return scope_find_shared(thread, e);
}

HIDDEN COLD void scope_was_seen(struct epoch *e, uint64_t id);
INLINE void scope_look_away(struct thread *thread, struct epoch *e, uint64_t id) {
  scope_set_looking(thread, 0);
  /* The thread that ended the epoch meanwhile, or left it last, may have seen this one and left the rest to it. */
  if (UNLIKELY(scope_open_id(e) != id || scope_has_ended(e))) scope_was_seen(e, id);
}

/* Inside, by the thread that is looking: it stays inside from now on, once more, and looks no longer. */
INLINE void scope_stay(struct thread *thread, struct heap *heap) {
  uint32_t entered = atomic_load_explicit(&heap->entered, memory_order_relaxed) + 1;
  /* This and the next pair with scope_is_inside. */
  atomic_store_explicit(&heap->entered, entered, memory_order_release);
  atomic_store_explicit(&thread->looking, 0, memory_order_release);
}

/* The same for an epoch that a call named before, in a few instructions, where the barrier is one-sided and the epoch
 * does not close by itself. scope_look_named returns true if the epoch is open. When scope_look_away_named returns
 * false, the caller calls scope_was_seen. */
INLINE struct named *scope_named(struct thread *thread, uint64_t id_or_slot) {
  return &thread->named[id_or_slot % NAMED];
}
INLINE bool scope_look_named(struct thread *thread, const struct named *named) {
  atomic_store_explicit(&thread->looking, named->id, memory_order_release);
  atomic_signal_fence(memory_order_seq_cst);
  return atomic_load_explicit(&named->epoch->open_id, memory_order_acquire) == named->id;
}
INLINE bool scope_look_away_named(struct thread *thread, const struct named *named) {
  atomic_store_explicit(&thread->looking, 0, memory_order_release);
  atomic_signal_fence(memory_order_seq_cst);
  return atomic_load_explicit(&named->epoch->open_id, memory_order_acquire) == named->id;
}
INLINE void scope_learn(struct thread *thread, struct epoch *e, uint64_t id, struct heap *heap) {
  if (scope_is_one_sided() && !(LOAD_RACING(e->flags) & TSLAB_EPOCH_AUTO_CLOSE))
    *scope_named(thread, id) = (struct named){id, e, heap, e->arena.index};
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

/* The thread's part of the epoch, inside which it is from now on, once more. NULL and *error: ESTALE, ESHUTDOWN,
 * ENOMEM. */
HIDDEN struct heap *scope_hold(struct thread *thread, uint64_t id, int *error);
HIDDEN void scope_let_go(struct heap *heap, uint64_t id);

HIDDEN int scope_enter(struct thread *thread, uint64_t id);
HIDDEN int scope_leave(struct thread *thread, uint64_t id);
HIDDEN int scope_switch(struct thread *thread, uint64_t id); /* the innermost scope's epoch */

INLINE bool scope_is_in_any(const struct thread *thread) {
  return thread->depth != 0 || thread->scopes[0].heap != NULL;
}
INLINE uint64_t scope_current(const struct thread *thread) { return thread->scopes[thread->depth].id; }

/* Under the epoch's lock, open_id taken away: from now on no thread enters, and every one inside is seen. */
HIDDEN void scope_shut(struct epoch *e);
HIDDEN unsigned scope_threads_inside(const struct epoch *e);
HIDDEN bool scope_is_inside(const struct heap *heap);

/* Under the epoch's lock: a new heap for the thread, or one that another left, attached to it. The thread's table has
 * room. NULL without memory. */
HIDDEN struct heap *scope_attach(struct thread *thread, struct epoch *e);

/* Under the epoch's lock: the heap, inside which nobody is, serves no thread any more; with slabs it stays with the
 * epoch. */
HIDDEN void scope_detach(struct epoch *e, struct heap *heap);

HIDDEN void scope_check(const struct epoch *e); /* under its lock */

/* In a fork child, after heap_retire_others or heap_freeze. */
HIDDEN void scopes_retire_others(void);
HIDDEN void scopes_freeze(bool knows_its_thread);

#endif
