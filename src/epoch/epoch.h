/* epoch: a lifetime with a name: open -> closing -> ended.                                           floor: epoch
 *
 *   id = incarnation 40 | index 24          index: its slot in heap/arena.h, used again by the next incarnation
 *
 * open_id is the id while the epoch may be entered and 0 otherwise: the one word that enter compares. An epoch that
 * closes with blocks alive, or children that are, stays closing until the last is gone; then its slot is free and the
 * id stale.
 *
 * Its heaps hang in a list. A heap is attached to the thread that it serves (epoch/attach.h), or waits for one with the
 * slabs that a thread left. Who ends an epoch takes open_id away, makes sure that every thread sees it, and then may
 * touch every heap whose thread is not inside.
 *
 * Invariant: state OPEN <=> open_id = id, but for a moment under the lock; ended epochs own no run and no heap.
 *            epoch_check()
 * Threads:   all under the epoch's lock, of which there are EPOCH_LOCKS for all, but: open_id and id are read by
 *            anyone; children and siblings are under tree_lock. Locks, outermost first: a gate, tree_lock, an epoch's,
 *            then as docs/invariants.md says.
 *
 * Work whose length has no bound is not done under the lock, which epochs share, but by an owner. epoch_lock waits
 * until the epoch has no owner, so for other threads an owned epoch is one whose lock is held:
 *
 *   owner:  gate, epoch_lock; owned = 1; unlock    | works |    lock; owned = 0; gate released
 *   other:  lock; owned ?  unlock, sleep on owned, again
 *
 * An owner holds one of EPOCH_GATES locks that nobody else wants but a fork, which so finds no epoch half done. */
#ifndef TSLAB_EPOCH_EPOCH_H
#define TSLAB_EPOCH_EPOCH_H

#include "heap/tcache.h"
#include "os/os.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <limits.h>

enum epoch_state { EPOCH_ENDED, EPOCH_OPEN, EPOCH_CLOSING, EPOCH_CACHED };

struct epoch {
  struct arena arena; /* first: a slot's index leads to both */
  uint64_t era;
  /* Enter and leave read this line. It is written when something begins or ends. */
  _Atomic uint64_t open_id;
  _Atomic uint64_t id; /* of this incarnation; while ended, of the last one */
  struct thread *_Atomic owner; /* whose the first of the heaps is: epoch/attach.h */
  struct heap *heaps;
  _Atomic uint8_t state;
  _Atomic bool scope_ended; /* TSLAB_EPOCH_AUTO_CLOSE: a scope of it has ended, so the last thread to go closes it */
  uint8_t flags;
  bool stepping;     /* closing by close_step */
  bool descending;   /* who closes it has given up the lock for its children, and comes back: nobody else may end it */
  uint8_t doubts;    /* times that it was taken wrongly for one that frees what it takes: epoch_learn */
  uint16_t drained;  /* closes of this label in a row at which each block had been freed */
  uint16_t kept_granules; /* granules of the reserve that it is while it is a cached epoch */
  uint16_t slab_granules; /* its slabs, at the most as many as can be told, */
  uint32_t kept_at;       /* and heap->visits, when that was counted */
  uint32_t children, next_sibling, previous_sibling; /* by index */
  uint32_t next_free;
  uint64_t opened_ns;
  _Atomic uint64_t diverted;
  uint32_t reset_mark; /* which reset of an ancestor came by last; under tree_lock */
  _Atomic uint32_t handles, freeing; /* tables of handles, and blocks that are
                                        freed through them just now: epoch/handle.h */
  uint32_t roomy; /* those of the tables that have an unused slot */
  uint64_t allocations; /* of this incarnation, by heaps that serve it no more */
  uint64_t opened_here, allocated_here, recycled_here; /* for its label's row, which has them once the label changes */
  char label[TSLAB_EPOCH_LABEL];
};
_Static_assert(sizeof(struct epoch) <= ARENA_SLOT, "lies in a lifetime's slot");
_Static_assert(ARENA_SLOT % CACHE_LINE == 0 && offsetof(struct epoch, open_id) % CACHE_LINE == 0 &&
               offsetof(struct epoch, flags) / CACHE_LINE == offsetof(struct epoch, open_id) / CACHE_LINE, "one line");

#define EPOCH_INDEX_BITS 24

INLINE uint32_t epoch_index(uint64_t id) { return (uint32_t)(id & (((uint64_t)1 << EPOCH_INDEX_BITS) - 1)); }
INLINE struct epoch *epoch_at(uint32_t index) { return (struct epoch *)(void *)arena_at(index); }
INLINE uint64_t epoch_id(const struct epoch *e) { return atomic_load_explicit(&e->id, memory_order_relaxed); }
INLINE enum epoch_state epoch_state(const struct epoch *e) {
  /* Acquire: pairs with epoch_begin, so that who sees it open sees its id and all else. */
  return (enum epoch_state)atomic_load_explicit(&e->state, memory_order_acquire);
}

/* The slot that an id could be of, or NULL. Its id may be another. */
INLINE struct epoch *epoch_slot(uint64_t id) {
  uint32_t index = epoch_index(id);
  return index != 0 && index <= arenas_made() ? epoch_at(index) : NULL;
}

/* 0 when `id` is open, else ESTALE or ESHUTDOWN. Under the lock, or as a hint. */
INLINE int epoch_error(const struct epoch *e, uint64_t id) {
  if (UNLIKELY(!e)) return ESTALE;
  enum epoch_state state = epoch_state(e); /* first: else it could be that of the slot's next incarnation */
  if (UNLIKELY(epoch_id(e) != id)) return ESTALE;
  return LIKELY(state == EPOCH_OPEN) ? 0 : state == EPOCH_CLOSING ? ESHUTDOWN : ESTALE;
}

#define EPOCH_LOCKS 64
#define EPOCH_GATES 64
extern HIDDEN struct lone_lock epoch_locks[EPOCH_LOCKS], epoch_gates[EPOCH_GATES];
extern HIDDEN struct lock slots_lock;

INLINE bool epoch_is_owned(const struct epoch *e) {
  return atomic_load_explicit(&e->arena.owned, memory_order_relaxed) != 0;
}
INLINE struct lock *epoch_lock_of(const struct epoch *e) {
  return &epoch_locks[e->arena.index % EPOCH_LOCKS].lock;
}

/* Caller holds the lock, which this gives to others while it waits until the epoch has no owner. */
HIDDEN COLD void epoch_wait(const struct epoch *e);

/* Caller holds no lock but one of a round or publication. */
INLINE void epoch_lock(const struct epoch *e) {
  lock_take(epoch_lock_of(e));
  if (UNLIKELY(epoch_is_owned(e))) epoch_wait(e);
}
INLINE void epoch_unlock(const struct epoch *e) { lock_release(epoch_lock_of(e)); }

/* For work on all that the epoch holds: locks an epoch that holds little, and returns NULL. Makes the caller the owner
 * of another, and returns the owner's gate. Caller holds no lock, as for epoch_lock. */
HIDDEN struct lock *epoch_take(struct epoch *e);
HIDDEN struct lock *epoch_own(struct epoch *e); /* the same, always as the owner */

/* Ends what epoch_take or epoch_own began; `gate` is what that returned. "By the owner" means: between the two. */
HIDDEN void epoch_release(struct epoch *e, struct lock *gate);

#define EPOCH_DEPTH 64 /* parents above an epoch, at most: what walks the tree calls itself */

/* Blocks handed out in it since it was opened. Under the lock. */
HIDDEN uint64_t epoch_allocations(const struct epoch *e);

/* At the end of an incarnation with one heap, under the lock: what it handed out counts for its label, the heap, whose
 * tcache_handed_out() is given, begins anew. */
INLINE void epoch_count_allocations(struct epoch *e, struct heap *heap, uint64_t handed_out) {
  uint64_t sum = e->allocations + atomic_load_explicit(&e->arena.large, memory_order_relaxed);
  if (heap) {
    sum += handed_out - heap->before;
    heap->before = handed_out;
  }
  STORE_RACING(e->allocated_here, e->allocated_here + sum);
  STORE_RACING(e->allocations, 0);
  atomic_store_explicit(&e->arena.large, 0, memory_order_relaxed);
}

/* What it recycled and returned counts for its label, and is 0 again. */
HIDDEN void epoch_count_bytes(struct epoch *e);

/* Ends in a row at which each block had been freed before, until the label's next epochs fill slabs from the start:
 * some ten slabs are born after them, in a microsecond or two. Where invariants are checked it is so few that tests
 * reach it in whatever they do. */
#define EPOCH_DRAINS      (TSLAB_CHECK_LEVEL >= 2 ? 2 : 64)
#define EPOCH_DOUBTS_MOST (TSLAB_CHECK_LEVEL >= 2 ? 1 : 9)

/* Under the lock, at an end or a reset of an epoch that was used: whether each block had been freed before. */
INLINE void epoch_learn(struct epoch *e, bool drained) {
  if (drained) {
    if (e->drained < UINT16_MAX) e->drained++;
    return;
  }
  e->drained = 0;
  if (LIKELY(!e->arena.by_slabs)) return;
  e->arena.by_slabs = false;
  if (e->doubts < EPOCH_DOUBTS_MOST) e->doubts++;
}
INLINE bool epoch_has_learned(const struct epoch *e) {
  return e->drained >= (unsigned)EPOCH_DRAINS << e->doubts;
}
_Static_assert(EPOCH_DRAINS << EPOCH_DOUBTS_MOST <= UINT16_MAX, "can be counted up to");

/* Takes a slot, which is an ended epoch's or new; NULL when there is none. Gives one back. */
HIDDEN struct epoch *epoch_slot_take(void);
HIDDEN void epoch_slot_free(struct epoch *e);

/* Sets what every incarnation starts with, its id last. */
HIDDEN void epoch_begin(struct epoch *e, const char *label, uint32_t flags);

/* Counts the incarnation for its label and makes its id stale: no heap, no run, no child. Under the lock, or by the
 * owner. Its place in the tree and its slot are given back without the lock: epoch/finish.h. */
HIDDEN void epoch_end(struct epoch *e);

INLINE bool epoch_has_children(const struct epoch *e) { return __atomic_load_n(&e->children, __ATOMIC_RELAXED) != 0; }

HIDDEN void epoch_check(struct epoch *e);

/* Returns true if the next incarnation inherits nothing: no parent, no child, no budget. Under the lock. */
INLINE bool epoch_is_plain(const struct epoch *e) {
  return !e->arena.parent && !epoch_has_children(e) && e->arena.budget == SIZE_MAX;
}

/* Bytes of its runs. */
INLINE size_t epoch_own_bytes(const struct epoch *e) {
  return atomic_load_explicit(&e->arena.own, memory_order_relaxed);
}

/* In a fork child that may have copied an epoch half written: all are closing, and never end. */
HIDDEN void epochs_freeze(void);

#endif
