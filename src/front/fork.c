/* fork: what a child has of its parent's heap.                                                       floor: front
 *
 * The kernel copies the address space at one moment: every other thread's writes are in the copy up to some instruction
 * of that thread, together with all that these writes rest on, and then the thread does not exist. So what a lock
 * protects is whole in a child in which the lock is free, and what is only a thread's own is whole but for the call
 * that the thread was in the middle of.
 *
 * fork():  the handlers take every lock, so the copy is whole.
 * _Fork(), clone() without CLONE_VM:  no handler runs, and nobody may have been asked to wait. The kernel wipes
 *   lock_witness in the child, so the first to take a lock there finds out. When every lock is free, the copy is whole
 *   too. Else what leads to free memory may be half written, and all that lies below the frontier freezes: live blocks
 *   stay as they are, free memory serves nobody, what is freed there serves nobody either, epochs are closing for ever;
 *   the thread keeps its lists, and new memory comes from beyond. What that loses is counted.
 * vfork(), posix_spawn(), clone() with CLONE_VM:  no copy. The child is its parent's heap's user like any thread.
 *
 * Invariant: in a child every lock is free, and no part is live or entered but the forking thread's own. */
#include "front/front.h"

#include "base/options.h"
#include "epoch/ending.h"
#include "epoch/handle.h"
#include "front/publish.h"
#include "heap/label.h"
#include "heap/lifetime.h"
#include "os/os.h"
#include <pthread.h>

enum { WIPED, SETTLED, SETTLING /* and more: this and the id of the thread that does it */ };

/* Every lock of ours, outermost first, but those of publication and of rounds, which guard no memory. What a visit to
 * one lock finds behind it must not change any more: so parts come after parts_lock. */
static void each_lock(void (*visit)(struct lock *)) {
  visit(&tree_lock);
  for (unsigned i = 0; i < EPOCH_LOCKS; i++) visit(&epoch_locks[i].lock);
  visit(&slots_lock);
  visit(&labels_lock);
  visit(&threads_lock);
  visit(&handles_zero_lock);
  visit(&handles_lock);
  visit(&parts_lock);
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_acquire); p; p = p->next_part) visit(&p->lock);
  for (unsigned i = 0; i < LIFETIME_LOCKS; i++) visit(&lifetime_locks[i].lock);
  visit(&reserve_lock);
  visit(&pages_lock);
  visit(&homeless_lock);
}

static void take(struct lock *lock) { lock_take(lock); }

static bool found_held;
static void look_whether_held(struct lock *lock) {
  found_held |= atomic_load_explicit(&lock->word, memory_order_relaxed) != 0;
}

/* ---- the child --------------------------------------------------------------------------------------------------- */

static uint32_t process; /* whose memory this is */

bool fork_is_visitor(void) {
  uint32_t here = os_process_id();
  return here != process && (int32_t)here > 0; /* a filter may refuse to tell */
}

static void begin_anew(void) {
  process = os_process_id();
  publish_after_fork(true);
  scavenger_after_fork_child();
  if (current_thread) {
    current_thread->home->sampling.timings = 0; /* the parent's thread counts them */
    tally_is_of_this_thread(current_part->tally);
  }
  options.stats_at_exit = NULL; /* the file is the parent's */
}

/* Of a copy that is whole, every lock free. */
static void settle(void) {
  lifetimes_after_fork();
  heap_bury_others();
  handles_after_fork();
  scopes_bury_others();
  epochs_after_fork();
  endings_go_on();
  heap_count_leaked();
  begin_anew();
}

static void freeze(bool knows_its_thread) {
  heap_freeze(knows_its_thread);
  reserve_freeze();
  epochs_freeze();
  handles_freeze();
  scopes_freeze(knows_its_thread);
  begin_anew();
}

/* By the first thread of such a child to take a lock, which holds none. It may be another than the one that forked,
 * which then is in none of our slow paths: whose the live parts are is not known. */
static COLD void settle_unseen(void) {
  uint32_t seen = WIPED, self = os_thread_id();
  if (!atomic_compare_exchange_strong(lock_witness, &seen, SETTLING + self)) {
    if (seen == SETTLING + self) return;
    while (atomic_load_explicit(lock_witness, memory_order_acquire) != SETTLED) os_yield();
    return;
  }
  bool forked_here = self == os_process_id();
  found_held = !forked_here;
  each_lock(look_whether_held);
  each_lock(lock_reset);
  if (found_held) freeze(forked_here);
  else settle();
  atomic_store_explicit(lock_witness, SETTLED, memory_order_release); /* pairs with lock_look */
}

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static void before_fork(void) {
  publish_before_fork();
  each_lock(take);
}

/* The list of parts stands still as long as parts_lock is held. */
static void release(struct lock *lock) {
  if (lock != &parts_lock) lock_release(lock);
}

static void after_fork_parent(void) {
  each_lock(release);
  lock_release(&parts_lock);
  publish_after_fork(false);
}

static void after_fork_child(void) {
  atomic_store(lock_witness, SETTLED);
  each_lock(lock_reset);
  settle();
}

void fork_start(void) {
  process = os_process_id();
  _Atomic uint32_t *witness = os_fork_witness();
  if (witness) lock_witness = witness;
  lock_on_copy = settle_unseen;
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}
