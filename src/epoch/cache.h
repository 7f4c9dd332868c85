/* cached epoch: an epoch that ended empty, kept by its thread for the next one that it opens.        floor: epoch
 *
 * So a request in its own epoch takes no lock but its epoch's and touches the memory that the last one left hot. The
 * cached epoch's chunk is part of the reserve, and its thread claims it (heap/chunk_cache.h). Once the epoch is open
 * again its memory is not part of the reserve any more; the claim stays for the thread's next cached epoch, until the
 * scavenger has seen the epoch open twice. The scavenger ends cached epochs that were not used for a second.
 *
 * An epoch whose blocks are freed one by one has nothing of its chunk but the slow way of malloc and free. So where
 * a label's epochs end drained again and again, the next ones fill slabs from the start (arena.by_slabs), and a
 * cached epoch keeps these, with free blocks in its heap's lists: what they ever touched is part of the reserve.
 * Whenever that turns out wrong - blocks were given up, others freed some, or it is too much to keep - it takes twice
 * as many such ends until it is tried again. docs/decisions/0022. */
#ifndef TSLAB_EPOCH_CACHE_H
#define TSLAB_EPOCH_CACHE_H

#include "epoch/attach.h"

/* Under the lock, or by the owner: whether the epoch, whose one heap is attached to the thread, could become its cached
 * epoch, and has room in the reserve; and making it so once it is empty. `handed_out`: the heap's
 * tcache_handed_out(). */
HIDDEN bool epoch_cache_may_keep(const struct thread *thread, struct epoch *e);
HIDDEN void epoch_cache_keep(struct thread *thread, struct epoch *e, uint64_t handed_out);

/* Under the lock, or of an epoch that nobody can find: it is no cached epoch, and the thread whose heap for epoch 0 is
 * `plain` claims nothing for it. */
HIDDEN void epoch_cache_drop_claim(struct epoch *e, struct heap *plain);

/* The scavenger's look at a thread's claim, each tick: it ends where the epoch that was the cached epoch stays open. */
HIDDEN void epoch_cache_update_claim(struct heap *plain);

/* Bytes that the reserve holds: what lies ready for all, and what each thread keeps. Never more than the reserve's
 * bound, whatever moves meanwhile. */
HIDDEN size_t epoch_caches_reserve_bytes(void);

/* The id of an open epoch made of the thread's cached epoch, or 0. */
HIDDEN uint64_t epoch_cache_open(struct thread *thread, const char *label, uint32_t flags);

/* Returns true if the thread's cached epoch was that epoch. */
INLINE bool epoch_cache_is(const struct thread *thread, uint64_t id) {
  const struct epoch *e = atomic_load_explicit(&thread->cached_epoch, memory_order_relaxed);
  return e && epoch_id(e) == id;
}

/* From any thread; in a fork child, of a thread that it does not have, whose lists are lost. */
HIDDEN void epoch_cache_give_up(struct thread *thread, bool lists_are_lost);
HIDDEN void epoch_caches_age(bool now); /* each tick of the scavenger; all of them, when `now` */

#endif
