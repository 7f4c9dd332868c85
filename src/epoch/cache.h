/* cached epoch: an ended, empty epoch that its thread keeps and opens again as its next one.         floor: epoch
 *
 * So a request in its own epoch takes only its epoch's lock and touches the memory that the last request left hot. The
 * cached epoch's chunk is part of the reserve, and its thread claims it (heap/chunk_cache.h). Once the epoch is open
 * again, its memory is not part of the reserve any more. The claim stays for the thread's next cached epoch, until the
 * scavenger has seen the epoch open twice. The scavenger ends cached epochs that no thread used for a second.
 *
 * If a program frees an epoch's blocks one by one, the chunk only makes malloc and free slow. So after a label's epochs
 * ended drained many times, the next ones fill slabs from the start (arena.by_slabs). A cached epoch keeps such slabs,
 * with free blocks in its heap's lists; the pages that they ever touched are part of the reserve. Sometimes this turns
 * out wrong: the program gave blocks up, other threads freed some, or there is too much to keep. Then the library tries
 * it again only after twice as many such ends: docs/decisions/0022.
 *
 * A thread takes its cached epoch at each open, without an atomic instruction. Another thread that ends an old one
 * makes the barrier for both (epoch/inside.h):
 *
 *   the thread:  takes_cached = true       | barrier |  cached_is_claimed ?  waits
 *   another:     cached_is_claimed = true  | barrier |  takes_cached ?       leaves it */
#ifndef TSLAB_EPOCH_CACHE_H
#define TSLAB_EPOCH_CACHE_H

#include "epoch/inside.h"

/* epoch_cache_may_keep returns true if the epoch, whose one heap is attached to the thread, could become the thread's
 * cached epoch and has room in the reserve. epoch_cache_keep makes it the cached epoch once it is empty; `handed_out`
 * is the heap's tcache_handed_out(). Caller holds the lock, or owns the epoch. */
HIDDEN bool epoch_cache_may_keep(const struct thread *thread, struct epoch *e);
HIDDEN void epoch_cache_keep(struct thread *thread, struct epoch *e, uint64_t handed_out);

/* Ends the claim on a cached epoch by the thread whose heap of epoch 0 is `plain`. Caller holds the lock, or no other
 * thread can find the epoch. */
HIDDEN void epoch_cache_drop_claim(struct epoch *e, struct heap *plain);

/* The scavenger calls this for each thread each tick. It ends the thread's claim if the epoch that was its cached epoch
 * stays open. */
HIDDEN void epoch_cache_update_claim(struct heap *plain);

/* Returns the bytes that the reserve holds: those ready for all threads, and those that each thread keeps. The result
 * never exceeds the reserve's bound, even while memory moves between the two. */
HIDDEN size_t epoch_caches_reserve_bytes(void);

/* Opens the thread's cached epoch as a new epoch. Returns its id, or 0 if there is none. */
HIDDEN uint64_t epoch_cache_open(struct thread *thread, const char *label, uint32_t flags);

/* Returns true if the thread's cached epoch had that id. */
INLINE bool epoch_cache_is(const struct thread *thread, uint64_t id) {
  const struct epoch *e = atomic_load_explicit(&thread->cached_epoch, memory_order_relaxed);
  return e && epoch_id(e) == id;
}

/* Ends the thread's cached epoch. Thread: that one. Or that of a fork child, with `lists_are_lost` for a thread that
 * the child does not have. */
HIDDEN void epoch_cache_give_up(struct thread *thread, bool lists_are_lost);
HIDDEN void epoch_cache_after_fork(struct thread *thread); /* no thread takes or claims its cached epoch any more */
HIDDEN void epoch_caches_age(bool now); /* the scavenger calls it each tick; `now` ends all of them */

#endif
