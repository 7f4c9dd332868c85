/* fork: what a child has of its parent's heap.                                                      floor: runtime
 *
 * The kernel copies the address space at one moment: every other thread's writes are in the copy up to some instruction
 * of that thread, together with all that these writes rest on, and then the thread does not exist. So what a lock
 * protects is whole in a child in which the lock is free, and what is only a thread's own is whole but for the call
 * that the thread was in the middle of.
 *
 * fork():  the handlers take every lock, so the copy is whole. Three cases are left:
 *   - This thread may hold a lock already, because a signal handler that interrupted malloc forks. The handlers then
 *     take no lock, and the child is treated like one of _Fork().
 *   - Another thread is in that case, and waits in its fork for a lock of libc's that this thread has. After
 *     LOCK_PATIENCE_MS this thread gives back what it took, and goes on in the same way. While no thread is known to
 *     be in that case, it waits longer for the gate of an epoch: the end of a large epoch keeps one for seconds.
 *   - Between our handler and the copy, libc takes locks of its own: glibc's list of streams, of atfork handlers and of
 *     name services, musl's list of streams. A thread may hold one of them while it allocates, and so wait for a lock
 *     that we hold. The list of streams is taken before ours, which keeps the usual case in order. For the others, a
 *     thread that waited for LOCK_PATIENCE_MS releases our locks: the forking thread does nothing under them. The child
 *     then looks at every lock as after _Fork(). A forking thread that does not sleep is copying a large address space,
 *     and keeps our locks for up to COPY_MOST_MS.
 *   - A handler of the program's that was registered before ours runs between ours and the copy, and may allocate. The
 *     forking thread releases our locks itself when it finds that it waits for one of them. Such a handler in the child
 *     runs before ours, so the first slow path there does what ours would do.
 * _Fork(), clone() without CLONE_VM:  no handler runs, and nobody may have been asked to wait. The kernel wipes
 *   lock_witness in the child, so the first to take a lock there finds out. When every lock is free, or all are held by
 *   a thread that forks, the copy is whole too. Else what leads to free memory may be half written, and all that lies
 *   below the frontier freezes: live blocks stay as they are, free memory serves nobody, what is freed there serves
 *   nobody either, epochs are closing for ever; the thread keeps its lists, and new memory comes from beyond. What that
 *   loses is counted.
 * vfork(), posix_spawn(), clone() with CLONE_VM:  no copy. The child is its parent's heap's user like any thread.
 *
 * Invariant: in a child every lock is free, and no heap is live or entered but the forking thread's own. */
#include "runtime/fork.h"

#include "base/log.h"
#include "base/options.h"
#include "epoch/close.h"
#include "epoch/finish.h"
#include "epoch/handle.h"
#include "epoch/tree.h"
#include "stats/profile.h"
#include "stats/publish.h"
#include "heap/arena.h"
#include "heap/fork.h"
#include "heap/label.h"
#include "heap/guard.h"
#include "heap/profile.h"
#include "heap/span.h"
#include "os/os.h"
#include "slab/quarter.h"
#include "process/process.h"
#include "runtime/scavenger.h"
#include "epoch/scope.h"
#include <pthread.h>
#include <string.h>
#if defined(__GLIBC__)
#include <sys/single_threaded.h>
#endif

#define NS_OF_MS     UINT64_C(1000000)
#define COPY_MOST_MS 10000 /* a handler of the program's own may spin instead of sleep */

enum { WIPED, REPAIRED, REPAIRING /* and more: this and the id of the thread that does it */ };

/* Every lock is held by a thread that forks, or was until a waiter released them all. */
enum { NOT_HELD, HELD, BREAKING, BROKEN };
static _Atomic uint32_t hold;
static _Atomic uint64_t held_since_ns; /* on the coarse clock */
static _Atomic uint32_t held_by;       /* the forking thread's id */
static _Atomic uint32_t bare_waiters;  /* forks that take no lock of ours, and wait for glibc's list of streams */

/* The forks that this thread is making: a signal handler that interrupts one may make another. Each has one bit, the
 * innermost the lowest. */
static __thread struct {
  uint8_t are_bare;     /* its handlers took no lock */
  uint8_t have_streams; /* they took the lock of glibc's list of streams */
} forks_of_this_thread;

static void begin_one(uint8_t *bits, bool value) { *bits = (uint8_t)(*bits << 1 | value); }

static bool end_one(uint8_t *bits) {
  bool value = *bits & 1;
  *bits >>= 1;
  return value;
}

/* Visits every lock of ours, outermost first, but those of publication, of rounds and of who reads, which guard no
 * memory. What a
 * visit to one lock finds behind it must not change any more: so heaps come after heaps_lock. */
static void each_lock(void (*visit)(struct lock *)) {
  for (unsigned i = 0; i < EPOCH_GATES; i++) visit(&epoch_gates[i].lock);
  visit(&start_lock);
  visit(&tree_lock);
  for (unsigned i = 0; i < EPOCH_LOCKS; i++) visit(&epoch_locks[i].lock);
  visit(&slots_lock);
  visit(&labels_lock);
  visit(&threads_lock);
  visit(&handles_zero_lock);
  visit(&handles_lock);
  visit(&heaps_lock);
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) visit(&p->lock);
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active)
    if (p != &common_heap) visit(&p->lock);
  if (common_begun) visit(&common_heap.lock); /* after every other heap's; it guards all folded heaps */
  for (unsigned i = 0; i < ARENA_LOCKS; i++) visit(&arena_locks[i].lock);
  visit(&reserve_lock);
  visit(&quarter_lock);
  visit(&pages_lock);
  profile_visit_lock(visit);
  guard_visit_lock(visit);
}

static bool found_held;
static void look_whether_held(struct lock *lock) {
  found_held |= atomic_load_explicit(&lock->word, memory_order_relaxed) != 0;
}

/* ---- the child --------------------------------------------------------------------------------------------------- */

static void begin_anew(void) {
  process_is_this();
  locks_held = 0; /* every lock was reset */
  atomic_store_explicit(&bare_waiters, 0, memory_order_relaxed);
  atomic_store_explicit(&hold, NOT_HELD, memory_order_relaxed);
  publish_after_fork(true);
  lock_reset(&profile_reading);
  scavenger_after_fork_child();
  if (current_thread) {
    current_thread->plain->sampling.timings = 0; /* the parent's thread counts them */
    counters_are_of_this_thread(current_heap->counters);
  }
  options.stats_at_exit = NULL; /* the file is the parent's */
}

/* Makes a child right whose copy of memory is whole, every lock free. */
static void repair(void) {
  arenas_after_fork();
  heap_retire_others();
  handles_after_fork();
  scopes_retire_others();
  epochs_after_fork();
  epochs_close_on();
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

static bool is_repairing; /* a signal handler that forks now has a child of a copy that is repaired in part */

/* The state of the locks tells whether the copy is whole; `forked_here`: this thread made the fork. A thread that forks
 * and holds every lock does nothing under them. */
static void repair_by_locks(bool forked_here) {
  uint32_t seen = atomic_load_explicit(&hold, memory_order_relaxed);
  found_held = !forked_here || is_repairing || seen == BREAKING;
  is_repairing = true;
  if (seen != HELD) each_lock(look_whether_held);
  each_lock(lock_reset);
  if (found_held) freeze(forked_here);
  else repair();
  is_repairing = false;
}

static _Atomic bool is_repaired; /* since this process began, and it has made no fork since then */

/* Once in a child, by its first thread to come here. Others wait. Nobody can come first where the kernel does not wipe
 * the witness. */
static void repair_once(uint32_t self, bool forked_here) {
  uint32_t seen = WIPED;
  if (!atomic_compare_exchange_strong(lock_witness, &seen, REPAIRING + self)) {
    if (seen == REPAIRING + self) return;
    while (atomic_load_explicit(lock_witness, memory_order_acquire) != REPAIRED) os_rest();
    return;
  }
  repair_by_locks(forked_here);
  atomic_store_explicit(&is_repaired, true, memory_order_relaxed);
  atomic_store_explicit(lock_witness, REPAIRED, memory_order_release); /* pairs with lock_look */
}

/* The first thread of such a child to take a lock calls this, and holds none. It may be another than the one that
 * forked, which then is in none of our slow paths: whose the live heaps are is not known. */
static COLD void repair_unseen(void) {
  uint32_t self = os_thread_id();
  repair_once(self, self == os_process_id());
}

/* ---- glibc's list of streams ------------------------------------------------------------------------------------- */

/* fflush(NULL) holds the list's lock while it waits for a stream, getline holds a stream while it allocates, and glibc
 * takes the list's lock after our handler. glibc exports these for its own use; where one is missing, a waiter breaks
 * the deadlock. The lock may be taken twice by one thread. */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

#if defined(__GLIBC__)
static bool has_list_lock(void) {
  return _IO_list_lock && _IO_list_unlock && _IO_list_resetlock && !__libc_single_threaded;
}
#else
static bool has_list_lock(void) { return false; }
#endif

/* The bit first: a fork in a signal handler that comes in between ends its own. */
static void take_streams(bool is_bare) {
  bool has = has_list_lock();
  begin_one(&forks_of_this_thread.have_streams, has);
  if (!has) return;
  if (is_bare) atomic_fetch_add(&bare_waiters, 1);
  _IO_list_lock();
  if (is_bare) atomic_fetch_sub(&bare_waiters, 1);
}

static void release_streams(void) {
  if (end_one(&forks_of_this_thread.have_streams)) _IO_list_unlock();
}

/* glibc resets the lock only in children of a process that has several threads by its own count. */
static void reset_streams(void) {
  if (forks_of_this_thread.have_streams) _IO_list_resetlock();
  forks_of_this_thread.have_streams = 0;
}

/* ---- the hold ---------------------------------------------------------------------------------------------------- */

/* The list of heaps does not change as long as heaps_lock is held, so that one is released last. */
static void release(struct lock *lock) {
  if (lock != &heaps_lock) lock_release(lock);
}

static void release_for(struct lock *lock) {
  if (lock != &heaps_lock) lock_release_for(lock);
}

/* Under publication's lock: how many of the locks the forking thread has, and whether one could not be had. */
static unsigned taken;
static bool has_given_up;

static bool is_gate(const struct lock *lock) {
  return (uintptr_t)lock - (uintptr_t)epoch_gates < sizeof epoch_gates;
}

static bool take_in_time(struct lock *lock) {
  uint64_t end = os_now_coarse_ns() + COPY_MOST_MS * NS_OF_MS;
  while (!lock_take_patiently(lock))
    if (!is_gate(lock) || atomic_load(&bare_waiters) != 0 || os_now_coarse_ns() >= end) return false;
  return true;
}

static void take(struct lock *lock) {
  if (!has_given_up && take_in_time(lock)) taken++;
  else has_given_up = true;
}

static void release_taken(struct lock *lock) {
  if (taken == 0) return;
  taken--;
  if (lock == &heaps_lock) has_given_up = false; /* it is to be released last */
  else lock_release(lock);
}

/* False when a lock cannot be had: the thread that holds it may wait for glibc's list of streams, in a signal handler
 * that forks. */
static bool hold_all(void) {
  taken = 0;
  has_given_up = false;
  each_lock(take);
  if (has_given_up) {
    each_lock(release_taken);
    if (!has_given_up) lock_release(&heaps_lock);
    return false;
  }
  atomic_store_explicit(&held_since_ns, os_now_coarse_ns(), memory_order_relaxed);
  atomic_store_explicit(&held_by, os_thread_id(), memory_order_relaxed);
  atomic_store_explicit(&hold, HELD, memory_order_release); /* pairs with break_hold */
  return true;
}

/* A waiter may be releasing the locks just now, or have released them. */
static void end_hold(unsigned held_before) {
  uint32_t seen = HELD;
  if (atomic_compare_exchange_strong(&hold, &seen, NOT_HELD)) {
    each_lock(release);
    lock_release(&heaps_lock);
    return;
  }
  while (atomic_load_explicit(&hold, memory_order_acquire) == BREAKING) os_wait(&hold, BREAKING, 1);
  atomic_store_explicit(&hold, NOT_HELD, memory_order_relaxed);
  locks_held = held_before;
}

/* Returns true if the kernel says that this thread is in a sleep that a signal would end, or says nothing. */
static bool is_asleep(uint32_t thread) {
  int unused;
  char state = thread_state(thread, &unused);
  return state == 0 || state == 'S';
}

static bool is_stuck(void) {
  uint64_t now = os_now_coarse_ns(), since = atomic_load_explicit(&held_since_ns, memory_order_relaxed);
  if (now < since + LOCK_PATIENCE_MS * NS_OF_MS) return false;
  return now >= since + COPY_MOST_MS * NS_OF_MS || is_asleep(atomic_load_explicit(&held_by, memory_order_relaxed));
}

/* Without signals: the forking thread waits for the end of this, and a handler that forks would wait for it. */
static void release_all_for_it(void) {
  uint32_t held = HELD;
  sigset_t before = os_block_signals();
  if (atomic_compare_exchange_strong(&hold, &held, BREAKING)) {
    each_lock(release_for);
    lock_release_for(&heaps_lock);
    atomic_store_explicit(&hold, BROKEN, memory_order_release); /* pairs with end_hold */
  }
  os_restore_signals(&before);
}

static bool is_own(void) { return atomic_load_explicit(&held_by, memory_order_relaxed) == os_thread_id(); }

/* Releases what a forking thread holds that has slept for long, or that waits for itself. Called by a thread that waits
 * for a lock. */
static void break_hold(void) {
  if (atomic_load_explicit(&hold, memory_order_acquire) != HELD) return;
  if (is_own() || is_stuck()) release_all_for_it();
}

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static void before_fork(void) {
  lock_look(); /* from here on only a child can set what follows */
  atomic_store_explicit(&is_repaired, false, memory_order_relaxed);
  bool is_bare = locks_held != 0;
  take_streams(is_bare); /* by every fork before libc's other locks, or two forks would wait for each other */
  if (!is_bare) is_bare = !publish_before_fork();
  if (!is_bare) {
    is_bare = !hold_all();
    if (is_bare) publish_after_fork(false);
  }
  begin_one(&forks_of_this_thread.are_bare, is_bare);
}

static void after_fork_parent(void) {
  if (!end_one(&forks_of_this_thread.are_bare)) {
    end_hold(1); /* publication's lock is not among them */
    publish_after_fork(false);
  }
  release_streams();
}

/* Handlers that ran before this one may have taken locks, or started threads that did: then the child is repaired. */
static void after_fork_child(void) {
  end_one(&forks_of_this_thread.are_bare);
  reset_streams();
  repair_once(os_thread_id(), true);
  if (!atomic_load_explicit(&is_repaired, memory_order_relaxed)) repair_by_locks(true);
  scavenger_may_start();
}

void fork_start(void) {
  process_is_this();
  _Atomic uint32_t *witness = os_fork_witness();
  if (witness) lock_witness = witness;
  lock_on_copy = repair_unseen;
  lock_on_stall = break_hold;
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}
