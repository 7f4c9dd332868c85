/* fork: makes a fork child's copy of the heap usable.                                               floor: runtime
 *
 * The kernel copies the address space at one moment. The copy has every other thread's writes up to some instruction of
 * that thread, with all writes that came before these, and in the child the thread does not exist. So the data that a
 * lock protects are whole in a child in which the lock is free. A thread's own data are whole except for the call that
 * the thread was in.
 *
 * fork():  the handlers take every lock, so the copy is whole, except in these cases:
 *   - This thread may hold a lock already, or be in a change of several steps (lock_change_begins), because a signal
 *     handler that interrupted malloc forks. The handlers then take no lock, and the library treats the child like one
 *     of _Fork(), in which a lock is held.
 *   - Another thread may be in that case, and wait in its fork for a lock of libc's that this thread has. After
 *     BARE_PATIENCE_MS this thread releases the locks that it took, and goes on in the same way. While no thread is
 *     known to be in that case, it waits for LOCK_PATIENCE_MS, and longer for the gate of an epoch, because the end of
 *     a large epoch holds one for seconds.
 *   - Between our handler and the copy, libc takes locks of its own: glibc's list of streams, of atfork handlers and of
 *     name services, musl's list of streams. A thread may hold one of them while it allocates, and so wait for a lock
 *     that we hold. Our handler takes the list of streams before our locks, which keeps the usual case in order. For
 *     the others, a thread that waited for LOCK_PATIENCE_MS releases our locks, because the forking thread changes
 *     nothing under them. The child then looks at every lock as after _Fork(). A forking thread that does not sleep is
 *     copying a large address space, and keeps our locks for up to COPY_MOST_MS.
 *   - A handler that the program registered before ours runs between ours and the copy, and may allocate. The forking
 *     thread releases our locks itself when it finds that it waits for one of them. In the child such a handler runs
 *     before ours, so the first slow path there does the work of ours.
 * _Fork(), clone() without CLONE_VM:  no handler runs, and no other thread waits. The kernel wipes lock_witness in the
 *   child, so the first thread there that takes a lock notices. If every lock is free, or a thread that forks holds all
 *   of them, the copy is whole, too. Otherwise the structures of free memory may be half written, and everything below
 *   the frontier freezes. Live blocks stay as they are. Memory that is free there, or is freed later, is never reused,
 *   and epochs are closing for ever. The thread keeps its lists, and new memory comes from beyond the frontier.
 *   Statistics count the memory that this loses.
 * vfork(), posix_spawn(), clone() with CLONE_VM:  no copy. The child uses its parent's heap like a thread.
 *
 * Invariant: in a child every lock is free, and no heap is live or entered but the forking thread's own. */
#include "runtime/fork.h"

#include "base/log.h"
#include "base/options.h"
#include "epoch/close.h"
#include "epoch/finish.h"
#include "epoch/handle.h"
#include "epoch/tree.h"
#include "stats/pace.h"
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
#include "runtime/birth.h"
#include "runtime/interpose.h"
#include "runtime/scavenger.h"
#include "epoch/scope.h"
#include <pthread.h>
#include <string.h>
#if defined(__GLIBC__)
#include <sys/single_threaded.h>
#endif

#define NS_OF_MS     UINT64_C(1000000)
#define COPY_MOST_MS 10000 /* a handler of the program may spin instead of sleep */
/* Locks are held for microseconds, so one that stays taken for this long is held by the fork that waits for us. A timer
 * may make such forks all the time, and a program whose every fork stands still for longer hardly moves. */
#define BARE_PATIENCE_MS 10

enum { WIPED, REPAIRED, REPAIRING /* or more: REPAIRING plus the id of the thread that repairs */ };

/* HELD: a thread that forks holds every lock. BREAKING, BROKEN: a waiter takes all of them over and releases them, or
 * has done so. */
enum { NOT_HELD, HELD, BREAKING, BROKEN };
static _Atomic uint32_t hold;
static _Atomic uint64_t held_since_ns; /* on the coarse clock */
static _Atomic uint32_t held_by;       /* the forking thread's id */
static _Atomic uint32_t bare_waiters;  /* forks that take no lock of ours and wait for glibc's list of streams */

/* The forks that this thread is making, one bit each; the lowest is the innermost. A signal handler that interrupts one
 * fork may make another. */
static __thread struct {
  uint8_t are_bare;     /* the handlers took no lock */
  uint8_t have_more;    /* the handlers took the lock of glibc's list of streams, or blocked signals */
} forks_of_this_thread;

static void begin_one(uint8_t *bits, bool value) { *bits = (uint8_t)(*bits << 1 | value); }

static bool end_one(uint8_t *bits) {
  bool value = *bits & 1;
  *bits >>= 1;
  return value;
}

/* Visits every lock of ours, outermost first, except those of publication, of rounds and of readers, which protect no
 * memory. Heaps come after heaps_lock, because the list of heaps must not change during the visits. */
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
  if (common_begun) visit(&common_heap.lock); /* after every other heap's; it protects all folded heaps */
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
  locks_held = 0; /* all locks have been reset */
  log_forget();
  pages_forget_purges();
  atomic_store_explicit(&bare_waiters, 0, memory_order_relaxed);
  atomic_store_explicit(&hold, NOT_HELD, memory_order_relaxed);
  publish_after_fork_child();
  lock_reset(&profile_reading);
  lock_reset(&pace_lock);
  if (libc_uncount_scavenger && scavenger_is_there()) libc_uncount_scavenger();
  scavenger_after_fork_child();
  if (current_thread) {
    current_thread->plain->sampling.timings = 0; /* the parent's thread counts them */
    counters_are_of_this_thread(current_heap->counters);
  }
  options.stats_at_exit = NULL; /* the file is the parent's */
}

/* Repairs a child whose copy of memory is whole. All locks are free. */
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

static bool is_repairing; /* the child of a signal handler that forks now has a copy that is repaired in part */

/* Repairs or freezes a child: the state of the locks tells if the copy is whole. A thread that forks and holds every
 * lock changes nothing under them. `forked_here`: this thread made the fork. */
static void repair_by_locks(bool forked_here) {
  uint32_t seen = atomic_load_explicit(&hold, memory_order_relaxed);
  bool is_in_change = seen == NOT_HELD && locks_held != 0; /* a signal handler interrupted this thread, and forked */
  found_held = !forked_here || is_repairing || is_in_change || seen == BREAKING;
  is_repairing = true;
  if (seen != HELD) each_lock(look_whether_held);
  each_lock(lock_reset);
  if (found_held) freeze(forked_here);
  else repair();
  is_repairing = false;
}

static bool has_witness; /* the kernel wipes lock_witness in a child */
static _Atomic uintptr_t repairer; /* the thread that repairs this process, or 0 */

/* Repairs a child once. The first thread that comes here does it, and others wait. If the kernel does not wipe the
 * witness, this does nothing. */
static void repair_once(uint32_t self, bool forked_here) {
  uint32_t seen = WIPED;
  if (!atomic_compare_exchange_strong(lock_witness, &seen, REPAIRING + self)) {
    if (seen == REPAIRING + self) return;
    while (atomic_load_explicit(lock_witness, memory_order_acquire) != REPAIRED) os_rest();
    return;
  }
  atomic_store_explicit(&repairer, OS_THREAD, memory_order_relaxed);
  repair_by_locks(forked_here);
  atomic_store_explicit(&repairer, 0, memory_order_relaxed);
  atomic_store_explicit(lock_witness, REPAIRED, memory_order_release); /* pairs with lock_look */
}

/* The first thread of such a child that takes a lock calls this, and holds none. It may be another thread than the one
 * that forked. Then this cannot tell which heap belongs to the one that forked, which is in none of our slow paths. A
 * repair takes many locks, and each comes here. In the child of a handler that forks meanwhile the witness is wiped. */
static COLD void repair_unseen(void) {
  bool is_wiped = atomic_load_explicit(lock_witness, memory_order_acquire) == WIPED;
  if (!is_wiped && atomic_load_explicit(&repairer, memory_order_relaxed) == OS_THREAD) return;
  uint32_t self = os_thread_id();
  repair_once(self, self == os_process_id());
}

/* ---- glibc's list of streams ------------------------------------------------------------------------------------- */

/* fflush(NULL) holds the list's lock while it waits for a stream, getline holds a stream while it allocates, and glibc
 * takes the list's lock after our handler. glibc exports these functions for its own use. If one is missing, a waiter
 * breaks the deadlock. A thread may take the lock twice. */
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

/* Sets the bit before it takes the lock: a fork in a signal handler in between ends its own bit. */
static void take_streams(bool is_bare) {
  bool has = has_list_lock();
  begin_one(&forks_of_this_thread.have_more, has);
  if (!has) return;
  if (is_bare) atomic_fetch_add(&bare_waiters, 1);
  _IO_list_lock();
  if (is_bare && atomic_load(&bare_waiters) != 0) atomic_fetch_sub(&bare_waiters, 1); /* 0: a fork child */
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* While a fork of a program of one thread blocks signals: that thread's id, and the signals that it blocked before. */
static _Atomic uint32_t blocked_by;
static signal_set blocked_before;

static uint32_t blocking_thread(void) { return atomic_load_explicit(&blocked_by, memory_order_relaxed); }

/* Returns true if the process may have other threads than the scavenger. */
static bool may_have_threads(void) {
  unsigned others = libc_other_threads ? libc_other_threads() : 0;
  if (UNLIKELY(others > 1)) birth_note_thread();
  return others > 0 || birth_may_have_had_threads();
}

/* In a program of one thread no signal handler runs while the thread holds our locks, because the handler may allocate.
 * In a program of several threads this blocks nothing: a collector may stop all threads by signals, while one of them
 * holds a lock that this thread waits for. */
static void block_signals(bool is_bare) {
  uint32_t blocking = blocking_thread();
  signal_set before = os_block_signals();
  bool blocks = !is_bare && blocking == 0 && atomic_compare_exchange_strong(&blocked_by, &blocking, os_thread_id());
  begin_one(&forks_of_this_thread.have_more, blocks);
  if (blocks) blocked_before = before;
  else os_restore_signals(before);
}

static void restore_signals(void) {
  atomic_store_explicit(&blocked_by, 0, memory_order_relaxed);
  os_restore_signals(blocked_before);
}

static void block_signals_or_take_streams(bool is_bare) {
  if (may_have_threads()) take_streams(is_bare);
  else block_signals(is_bare);
}

static void restore_signals_or_release_streams(void) {
  if (!end_one(&forks_of_this_thread.have_more)) return;
  if (blocking_thread() == os_thread_id()) restore_signals();
  else _IO_list_unlock();
}

/* glibc resets the lock only in children of a process that it believes to have several threads. Returns true if the
 * fork blocked signals. */
static bool reset_streams(void) {
  bool has_more = forks_of_this_thread.have_more != 0, has_blocked = has_more && blocking_thread() != 0;
  if (has_more && !has_blocked) _IO_list_resetlock();
  forks_of_this_thread.have_more = 0;
  if (!has_blocked) atomic_store_explicit(&blocked_by, 0, memory_order_relaxed); /* another thread's */
  return has_blocked;
}

/* ---- the hold ---------------------------------------------------------------------------------------------------- */

/* Releases a lock. The list of heaps does not change under heaps_lock, so that one is released last. */
static void release_one(struct lock *lock) {
  if (lock != &heaps_lock) lock_release(lock);
}

static void release_all(void) {
  each_lock(release_one);
  lock_release(&heaps_lock);
}

/* The number of locks that the forking thread has, and true once it could not take one. Publication's lock protects
 * these. */
static unsigned taken;
static bool has_given_up;

static bool is_gate(const struct lock *lock) {
  return (uintptr_t)lock - (uintptr_t)epoch_gates < sizeof epoch_gates;
}

static bool take_in_time(struct lock *lock) {
  uint64_t end = os_now_coarse_ns() + (is_gate(lock) ? COPY_MOST_MS : LOCK_PATIENCE_MS) * NS_OF_MS;
  while (!lock_take_within(lock, BARE_PATIENCE_MS))
    if (atomic_load(&bare_waiters) != 0 || os_now_coarse_ns() >= end) return false;
  return true;
}

static void take_one(struct lock *lock) {
  if (!has_given_up && take_in_time(lock)) taken++;
  else has_given_up = true;
}

static void release_taken(struct lock *lock) {
  if (taken == 0) return;
  taken--;
  if (lock == &heaps_lock) has_given_up = false; /* release_some releases it last */
  else lock_release(lock);
}

/* Takes every lock, up to one that stays taken. Returns false then. */
static bool take_all(void) {
  taken = 0;
  has_given_up = false;
  each_lock(take_one);
  return !has_given_up;
}

static void release_some(void) {
  each_lock(release_taken);
  if (!has_given_up) lock_release(&heaps_lock);
}

/* Takes every lock. Returns false, and holds none, if one stays taken: its holder may wait for glibc's list of streams,
 * in a signal handler that forks. */
static bool hold_all(void) {
  if (!take_all()) {
    release_some();
    return false;
  }
  atomic_store_explicit(&held_since_ns, os_now_coarse_ns(), memory_order_relaxed);
  atomic_store_explicit(&held_by, os_thread_id(), memory_order_relaxed);
  atomic_store_explicit(&hold, HELD, memory_order_release); /* pairs with break_hold */
  return true;
}

/* Releases every lock. A waiter may be doing that just now, or have done it. */
static void end_hold(unsigned held_before) {
  uint32_t seen = HELD;
  if (atomic_compare_exchange_strong(&hold, &seen, NOT_HELD)) {
    release_all();
    return;
  }
  while (atomic_load_explicit(&hold, memory_order_acquire) == BREAKING) os_wait(&hold, BREAKING, 1);
  atomic_store_explicit(&hold, NOT_HELD, memory_order_relaxed);
  locks_held = held_before | (locks_held & LOCKS_THEN_ABORT);
}

/* Returns true if the thread sleeps in a way that a signal would end, or if the kernel does not say. */
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

static void take_over_all(void) { each_lock(lock_take_over); }

/* Takes every lock over from the forking thread and releases it. Blocks signals meanwhile: the forking thread waits for
 * the end of this, and a handler that forks would wait for the forking thread. */
static void take_over_hold(void) {
  uint32_t held = HELD;
  signal_set before = os_block_signals();
  if (atomic_compare_exchange_strong(&hold, &held, BREAKING)) {
    take_over_all();
    release_all();
    atomic_store_explicit(&hold, BROKEN, memory_order_release); /* pairs with end_hold */
  }
  os_restore_signals(before);
}

static bool is_own(void) { return atomic_load_explicit(&held_by, memory_order_relaxed) == os_thread_id(); }

/* Releases the locks of a forking thread that has slept for long, or that waits for itself. A thread that waits for a
 * lock calls this. */
static void break_hold(void) {
  if (atomic_load_explicit(&hold, memory_order_acquire) != HELD) return;
  if (is_own() || is_stuck()) take_over_hold();
}

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static void before_fork(void) {
  lock_look();
  bool is_bare = locks_held != 0;
  block_signals_or_take_streams(is_bare); /* before libc's other locks, or two forks would wait for each other */
  if (!is_bare) is_bare = !publish_before_fork();
  if (!is_bare) {
    is_bare = !hold_all();
    if (is_bare) publish_after_fork_parent();
  }
  begin_one(&forks_of_this_thread.are_bare, is_bare);
}

static void after_fork_parent(void) {
  if (!end_one(&forks_of_this_thread.are_bare)) {
    end_hold(1); /* publication's lock, which each_lock does not visit */
    publish_after_fork_parent();
  }
  restore_signals_or_release_streams();
}

/* Handlers that ran before this one may have taken locks, or started threads that did. Then the child is repaired
 * already. */
static void after_fork_child(void) {
  if (libc_begin_child) libc_begin_child();
  end_one(&forks_of_this_thread.are_bare);
  bool has_blocked = reset_streams();
  repair_once(os_thread_id(), true);
  if (!has_witness) repair_by_locks(true);
  scavenger_may_start();
  if (has_blocked) restore_signals();
}

void fork_watch(void) {
  static bool watches; /* if two threads come here first, both watch, and that does no harm */
  if (LIKELY(watches)) return;
  watches = true;
  process_is_this();
  lock_on_copy = repair_unseen;
  lock_on_stall = break_hold;
  _Atomic uint32_t *witness = os_fork_witness();
  has_witness = witness != NULL;
  if (has_witness) lock_witness = witness;
}

/* Other threads may fork until the process is gone. glibc's pthread_atfork ties the handlers to this library, and exit
 * takes them away together with its destructors: a fork that began with our handlers would end without them, and hold
 * our locks for ever. Handlers of no library stay. */
#if defined(__GLIBC__)
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);
static void watch_forks(void) { __register_atfork(before_fork, after_fork_parent, after_fork_child, NULL); }
#else
static void watch_forks(void) { pthread_atfork(before_fork, after_fork_parent, after_fork_child); }
#endif

void fork_start(void) {
  fork_watch();
  watch_forks();
}
