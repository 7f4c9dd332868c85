/* scope: which epoch a thread's malloc goes to.                                                      floor: epoch
 *
 * A thread keeps parts of the epochs that it visited last attached, so that entering one again is a look at an array
 * and changing current_part. Enter and leave write only what is the thread's own:
 *
 *   enter:  entered++    | barrier |  open_id == id ?              ending:  open_id = 0  | barrier |  entered == 0 ?
 *
 * One of the two sees the other. The barrier of the right side is one on all threads, where the kernel offers that;
 * then the left one costs nothing. Else both are full fences.
 *
 * Threads: everything in struct thread belongs to its thread, but: `entered` and `attached[].id` are read by others,
 * and who holds an epoch's lock may take an attached part away whose thread is not inside; spare is atomic. */
#ifndef TSLAB_EPOCH_SCOPE_H
#define TSLAB_EPOCH_SCOPE_H

#include "epoch/epoch.h"

#define ATTACHED_IDLE 8 /* parts that stay attached without a scope */
#define ATTACHED_MOST (TSLAB_SCOPES + 1 + ATTACHED_IDLE + 1) /* the last is the spare's */
#define ATTACHED_SPARE UINT64_MAX /* no epoch's id: the part belongs to the thread's spare epoch */

struct attached {
  _Atomic uint64_t id; /* 0: unused */
  struct part *part;
  struct epoch *epoch;
  _Atomic uint32_t entered;
  uint32_t last_used; /* thread->clock then */
};

struct scope {
  uint64_t id;
  struct attached *attached; /* NULL: epoch 0 */
};

struct thread {
  struct part *home; /* of epoch 0 */
  struct attached *recent, *before; /* looked for last, and the one before that */
  unsigned depth, attached_count; /* entries of attached[] that were ever used */
  uint32_t clock;
  bool visiting;     /* current_part is no scope's, but that of one call that names its epoch */
  uint64_t advanced; /* what tslab_epoch_advance opened last; 0: nothing */
  struct epoch *_Atomic spare;
  uint64_t spare_seen; /* its id when the scavenger looked last, and */
  uint8_t spare_age;   /* how many looks ago it was so first */
  struct thread *next_free;
  struct thread *next; /* every thread ever made */
  struct scope scopes[TSLAB_SCOPES + 1]; /* [0]: outside all scopes */
  struct attached attached[ATTACHED_MOST];
};

/* A thread's birth, at its first slow path, and death. NULL without memory. */
HIDDEN struct thread *thread_acquire(struct part *part); /* of epoch 0 */
HIDDEN void thread_release(struct thread *thread);
HIDDEN extern struct thread *_Atomic all_threads;
HIDDEN extern struct lock threads_lock;

/* The thread's part of the epoch, inside which it is from now on, once more. NULL and *error: ESTALE, ESHUTDOWN,
 * ENOMEM. */
HIDDEN struct attached *scope_hold(struct thread *thread, uint64_t id, int *error);
HIDDEN void scope_let_go(struct attached *attached);

HIDDEN int scope_enter(struct thread *thread, uint64_t id);
HIDDEN int scope_leave(struct thread *thread, uint64_t id);
HIDDEN int scope_switch(struct thread *thread, uint64_t id); /* the innermost scope's epoch */

INLINE bool scope_is_in_any(const struct thread *thread) {
  return thread->depth != 0 || thread->scopes[0].attached != NULL;
}
INLINE uint64_t scope_current(const struct thread *thread) { return thread->scopes[thread->depth].id; }

/* Under the epoch's lock, open_id taken away: from now on no thread enters, and every one inside is seen. */
HIDDEN void scope_shut(struct epoch *e);
HIDDEN unsigned scope_threads_inside(const struct epoch *e);
INLINE bool scope_is_inside(const struct part *part) {
  return part->attached && atomic_load_explicit(&part->attached->entered, memory_order_acquire) != 0;
}

/* Under the epoch's lock: a new part for the thread, or one that another left. NULL without memory. */
HIDDEN struct attached *scope_attach(struct thread *thread, struct epoch *e, uint64_t id);

/* Under the epoch's lock: the part, inside which nobody is, serves no thread any more; with slabs it stays with the
 * epoch. */
HIDDEN void scope_detach(struct epoch *e, struct part *part);

/* In a fork child, after heap_bury_others or heap_freeze. */
HIDDEN void scopes_bury_others(void);
HIDDEN void scopes_freeze(bool knows_its_thread);

#endif
