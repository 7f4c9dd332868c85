/* epoch: a lifetime with a name: open -> closing -> ended.                                           floor: epoch
 *
 *   id = incarnation 40 | index 24          index: its slot in heap/arena.h, used again by the next incarnation
 *
 * open_id is the id while threads may enter the epoch, otherwise 0; enter compares only this word. An epoch that closes
 * with live blocks or children stays closing until the last of them is gone. Then its slot is free and the id stale.
 *
 * The epoch has a list of its heaps. A heap is attached to the thread that it serves (epoch/attach.h). If its thread
 * has ended, the heap waits with its slabs for another thread. A thread that ends an epoch clears open_id, makes sure
 * that every thread sees that, and then may touch every heap whose thread is not inside.
 *
 * Invariant: state OPEN <=> open_id = id, except while a holder of the lock changes them; an ended epoch owns no run
 * and no heap.
 *            epoch_check()
 * Threads:   the epoch's lock protects everything, with these exceptions: any thread reads open_id and id; tree_lock
 *            protects children and siblings. All epochs share EPOCH_LOCKS locks. A thread takes a gate first, then
 *            tree_lock, then an epoch's, then the others as docs/invariants.md says.
 *
 * Epochs share locks, so a thread does unbounded work on an epoch not under the lock, but as its owner. epoch_lock
 * waits until the epoch has no owner, so other threads take an owned epoch for one whose lock is held:
 *
 *   owner:  gate, epoch_lock; owned = 1; unlock    | works |    lock; owned = 0; gate released
 *   other:  lock; owned ?  unlock, sleep on owned, again
 *
 * An owner holds one of EPOCH_GATES locks. Other than owners, only a fork takes these, so that it finds no epoch half
 * done. */
#ifndef TSLAB_EPOCH_EPOCH_H
#define TSLAB_EPOCH_EPOCH_H

#include "heap/arena.h"
#include "heap/tcache.h"
#include "os/os.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <limits.h>

enum epoch_state { EPOCH_ENDED, EPOCH_OPEN, EPOCH_CLOSING, EPOCH_CACHED };

struct epoch {
  struct arena arena; /* the first field: a slot's index leads to both */
  uint64_t era;
  /* Enter and leave read this line. Threads write it only at the beginning or the end of something. */
  _Atomic uint64_t open_id;
  _Atomic uint64_t id; /* of this incarnation; of an ended epoch: of the last one */
  struct thread *_Atomic owner; /* the thread of the first heap: epoch/attach.h */
  struct heap *heaps;
  _Atomic uint8_t state;
  _Atomic bool scope_ended; /* TSLAB_EPOCH_AUTO_CLOSE: a scope of it has ended, so the last thread closes it */
  uint8_t flags;
  bool stepping;     /* closing by close_step */
  bool descending;   /* its closer released it to close its children: no other thread may end it */
  uint8_t doubts;    /* how often epoch_learn expected wrongly that the program frees each block */
  uint16_t drained;  /* closes of this label in a row that found each block freed */
  uint16_t kept_granules; /* granules that it counts for in the reserve while it is a cached epoch */
  uint16_t slab_granules; /* granules of its slabs, at most UINT16_MAX, */
  uint32_t kept_at;       /* and heap->visits at that count */
  uint32_t children, next_sibling, previous_sibling; /* by index */
  union {
    uint32_t next_free;    /* of an ended epoch's slot */
    uint32_t closed_after; /* closing: when its close was done, in CLOSED_UNITs since it was opened, plus 1;
                            * 0: not yet */
  };
  uint64_t opened_ns;
  _Atomic uint64_t diverted;
  uint32_t reset_mark; /* the mark of the last reset of an ancestor that met it; tree_lock protects it */
  _Atomic uint32_t handles, freeing; /* tables of handles, and frees through handles under way: epoch/handle.h */
  uint32_t roomy; /* the list of the tables that have an unused slot */
  uint64_t allocations; /* of this incarnation, by heaps that no longer serve it */
  uint64_t opened_here, allocated_here, recycled_here; /* added to its label's row once the label changes */
  char label[TSLAB_EPOCH_LABEL];
};
_Static_assert(sizeof(struct epoch) <= ARENA_SLOT, "lies in a lifetime's slot");
_Static_assert(ARENA_SLOT % CACHE_LINE == 0 && offsetof(struct epoch, open_id) % CACHE_LINE == 0 &&
               offsetof(struct epoch, flags) / CACHE_LINE == offsetof(struct epoch, open_id) / CACHE_LINE, "one line");

#define CLOSED_UNIT ((uint64_t)1 << 24) /* nanoseconds, so that two years have a number */

#define EPOCH_INDEX_BITS 24

INLINE uint32_t epoch_index(uint64_t id) { return (uint32_t)(id & (((uint64_t)1 << EPOCH_INDEX_BITS) - 1)); }
INLINE struct epoch *epoch_at(uint32_t index) { return (struct epoch *)(void *)arena_at(index); }
INLINE uint64_t epoch_id(const struct epoch *e) { return atomic_load_explicit(&e->id, memory_order_relaxed); }
INLINE enum epoch_state epoch_state(const struct epoch *e) {
  /* Acquire: pairs with epoch_begin, so a thread that sees it open also sees its id and all else. */
  return (enum epoch_state)atomic_load_explicit(&e->state, memory_order_acquire);
}

/* Returns the slot that the id leads to, or NULL. The slot may have another id. */
INLINE struct epoch *epoch_slot(uint64_t id) {
  uint32_t index = epoch_index(id);
  return index != 0 && index <= arenas_made() ? epoch_at(index) : NULL;
}

/* Returns 0 if `id` is open, otherwise ESTALE or ESHUTDOWN. Without the lock the result is a hint. */
INLINE int epoch_error(const struct epoch *e, uint64_t id) {
  if (UNLIKELY(!e)) return ESTALE;
  enum epoch_state state = epoch_state(e); /* read before the id, or it could be that of the slot's next incarnation */
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

/* Locks an epoch that has an owner, once it has none. */
HIDDEN COLD void epoch_lock_unowned(const struct epoch *e);

/* Caller holds no lock, except those of a walk over all heaps or of publication. */
INLINE void epoch_lock(const struct epoch *e) {
  lock_take(epoch_lock_of(e));
  if (LIKELY(!epoch_is_owned(e))) return;
  lock_release(epoch_lock_of(e));
  epoch_lock_unowned(e);
}
INLINE void epoch_unlock(const struct epoch *e) { lock_release(epoch_lock_of(e)); }

/* Takes an epoch for work on all its memory. If the epoch holds little, this locks it and returns NULL. Otherwise it
 * makes the caller the owner and returns the owner's gate. Caller holds no lock, as for epoch_lock. */
HIDDEN struct lock *epoch_take(struct epoch *e);
HIDDEN struct lock *epoch_own(struct epoch *e); /* always makes the caller the owner */

/* Ends what epoch_take or epoch_own began; `gate` is the result of that call. Comments call the thread between the two
 * calls the owner, even if it holds the lock. */
HIDDEN void epoch_release(struct epoch *e, struct lock *gate);

#define EPOCH_DEPTH 64 /* the most parents above an epoch, because a charge to a budget climbs to each of them */

/* Returns the number of blocks handed out in the epoch since it was opened. Caller holds the lock. */
HIDDEN uint64_t epoch_allocations(const struct epoch *e);

/* At the end of an incarnation with at most one heap: counts the blocks that it handed out for its label, and lets the
 * heap begin anew. `handed_out` is the heap's tcache_handed_out(). Caller holds the lock. */
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

/* Counts the recycled and returned bytes for the label, and sets them to 0. */
HIDDEN void epoch_count_bytes(struct epoch *e);

/* After so many ends in a row that find each block freed, the label's next epochs fill slabs from the start. About ten
 * slabs are then made, in a microsecond or two. Builds that check invariants use a small number, so that any test
 * reaches it. */
#define EPOCH_DRAINS      (TSLAB_CHECK_LEVEL >= 2 ? 2 : 64)
#define EPOCH_DOUBTS_MOST (TSLAB_CHECK_LEVEL >= 2 ? 1 : 9)

/* Called at each end and reset of an epoch that was used. `drained`: each block was freed before. Caller holds the
 * lock. */
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

/* epoch_slot_take returns the slot of an ended epoch or a new one, or NULL if there is none; epoch_slot_free gives it
 * back. */
HIDDEN struct epoch *epoch_slot_take(void);
HIDDEN void epoch_slot_free(struct epoch *e);

/* Sets the fields with which every incarnation starts, and returns its id. */
HIDDEN uint64_t epoch_begin(struct epoch *e, const char *label, uint32_t flags);

/* Counts the incarnation for its label and makes its id stale. The epoch has no heap, run or child any more. Caller
 * holds the lock, or owns the epoch. epoch_retire then gives back its place in the tree and its slot, without the lock
 * (epoch/finish.h). */
HIDDEN void epoch_end(struct epoch *e);

INLINE bool epoch_has_children(const struct epoch *e) { return __atomic_load_n(&e->children, __ATOMIC_RELAXED) != 0; }

HIDDEN void epoch_check(struct epoch *e);

/* Returns true if the next incarnation would inherit nothing: there is no parent, child or budget. Caller holds the
 * lock. */
INLINE bool epoch_is_plain(const struct epoch *e) {
  return !e->arena.parent && !epoch_has_children(e) && e->arena.budget == SIZE_MAX;
}

/* Returns the bytes of its runs. */
INLINE size_t epoch_own_bytes(const struct epoch *e) {
  return atomic_load_explicit(&e->arena.own, memory_order_relaxed);
}

/* For a fork child that may have copied an epoch half written: all epochs are closing, and never end. */
HIDDEN void epochs_freeze(void);

#endif
