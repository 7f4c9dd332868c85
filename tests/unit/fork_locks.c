/* fork_locks: a signal handler that interrupted a thread under one of our locks, or in a fork, may fork. A thread may
 * wait for our locks while it holds one that the forking thread needs; it ends the wait. A handler of SIGABRT may
 * allocate at any place where the library finds a misuse. In each case the child has a heap that works. */
#include "unit.h"

#include "base/options.h"
#include "epoch/scope.h"
#include "epoch/tree.h"
#include "heap/misuse.h"
#include "heap/registry.h"
#include "process/process.h"
#include "stats/pace.h"
#include "stats/profile.h"
#include "stats/publish.h"
#include <pthread.h>

enum { BLOCKS = 300, PATIENCE_S = 60, COPY_NS = 600000000 };

static void *inherited[BLOCKS];

static void use_heap(void) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(i * i + 1)) != NULL);
  for (size_t i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
}

static void live_as_child(void) {
  alarm(PATIENCE_S); /* a child inherits none */
  lock_take(&start_lock);
  lock_release(&start_lock);
  use_heap();
  for (int i = 0; i < BLOCKS; i++) tslab_free(inherited[i]);
  use_heap();
}

static void fork_once(void) { CHECK(in_child(live_as_child) == 0); }

/* ---- in a signal handler ----------------------------------------------------------------------------------------- */

static void fork_in_handler(int signal) {
  (void)signal;
  fork_once();
}

static void interrupted_under(struct lock *lock) {
  lock_take(lock);
  raise(SIGUSR1);
  lock_release(lock);
  CHECK_COUNT(locks_held, ==, 0);
  fork_once();
}

/* Another thread forks meanwhile: it holds glibc's list of streams, and waits for the interrupted thread's lock. */
static _Atomic int starts;
static void *fork_meanwhile(void *unused) {
  starts = 1;
  fork_once();
  return unused;
}

static void interrupted_beside_fork(struct lock *lock) {
  pthread_t thread;
  starts = 0;
  CHECK(pthread_create(&thread, NULL, fork_meanwhile, NULL) == 0);
  lock_take(lock);
  while (!starts) sched_yield();
  usleep(50000); /* the thread almost certainly waits by now */
  raise(SIGUSR1);
  lock_release(lock);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_COUNT(locks_held, ==, 0);
  fork_once();
}

/* A timer may do that again and again, and the program must still move: if each of the two forks stood still for
 * LOCK_PATIENCE_MS, the alarm would end this. */
enum { MEETINGS = 120, MEETINGS_S = MEETINGS * LOCK_PATIENCE_MS / 1000 - 5 };
static void meets_many_forks(struct lock *lock) {
  pthread_t thread;
  alarm(MEETINGS_S);
  for (int i = 0; i < MEETINGS; i++) {
    starts = 0;
    lock_take(lock);
    CHECK(pthread_create(&thread, NULL, fork_meanwhile, NULL) == 0);
    while (atomic_load(&lock->word) % 2 == 0) sched_yield(); /* it waits */
    raise(SIGUSR1);
    lock_release(lock);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  alarm(PATIENCE_S);
}

/* The same with publication's lock, which a thread in exit holds. */
static void interrupted_while_publishing(void) {
  pthread_t thread;
  starts = 0;
  CHECK(pthread_create(&thread, NULL, fork_meanwhile, NULL) == 0);
  CHECK(publish_before_fork());
  while (!starts) sched_yield();
  usleep(50000); /* the thread almost certainly waits by now */
  raise(SIGUSR1);
  publish_after_fork_parent();
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_COUNT(locks_held, ==, 0);
  fork_once();
}

/* ---- beside a slow path ------------------------------------------------------------------------------------------ */

/* A slow path takes the common heap's lock under its own heap's. The fork that waits for the own heap's must not hold
   the common heap's lock already, although that heap joined the list of heaps later. */
static void common_heap_comes_last(void) {
  pthread_t thread;
  heap_begin_common();
  starts = 0;
  lock_take(&current_heap->lock);
  CHECK(pthread_create(&thread, NULL, fork_meanwhile, NULL) == 0);
  while (atomic_load(&current_heap->lock.word) % 2 == 0) sched_yield(); /* it waits */
  const bool is_free = lock_try(&common_heap.lock);
  if (is_free) lock_release(&common_heap.lock);
  lock_release(&current_heap->lock);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(is_free);
}

/* A thread that ends a large epoch holds its gate in this way, and a thread that reads a heap profile holds the sums
   that it makes. */
enum { END_US = 600000 };
static void *hold_long(void *lock) {
  lock_take(lock);
  starts = 1;
  usleep(END_US);
  lock_release(lock);
  return NULL;
}

static void live_unfrozen(void);
static void child_beside_long_hold_is_whole(struct lock *lock) {
  pthread_t thread;
  starts = 0;
  CHECK(pthread_create(&thread, NULL, hold_long, lock) == 0);
  while (!starts) sched_yield();
  CHECK(in_child(live_unfrozen) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- exit -------------------------------------------------------------------------------------------------------- */

static void exit_in_handler(int signal) {
  (void)signal;
  exit(7);
}

static void exit_under_lock(void) {
  alarm(PATIENCE_S);
  signal(SIGUSR2, exit_in_handler);
  options.stats_at_exit = "/dev/null";
  lock_take(&current_heap->lock);
  raise(SIGUSR2);
}

static void *keep_publication(void *unused) {
  CHECK(publish_before_fork());
  starts = 1;
  for (;;) pause();
  return unused;
}

/* A thread that forks holds publication's lock, and waits in a handler for this thread, which calls exit. */
static void exit_beside_fork(void) {
  pthread_t thread;
  alarm(PATIENCE_S);
  starts = 0;
  CHECK(pthread_create(&thread, NULL, keep_publication, NULL) == 0);
  while (!starts) sched_yield();
  exit(7);
}

static void ends_with_7(void (*run)(void)) {
  const int status = in_child(run);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* ---- while another thread holds a lock of fork ------------------------------------------------------------------ */

/* The program's handlers run after ours, so these stand for libc, which takes locks of its own there. glibc runs
 * preinit_array before any constructor; other libcs do not know it. */
static pthread_mutex_t needed = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int forks, is_held;
static _Atomic bool copies_long;

/* Stands for the kernel's copy of a large address space: the thread does not sleep, and needs a while. */
static void copy_long(void) {
  for (uint64_t start = os_now_ns(); os_now_ns() - start < COPY_NS;) continue;
}

static void take_needed(void) {
  forks++;
  if (copies_long) copy_long();
  pthread_mutex_lock(&needed);
}
static void release_needed(void) { pthread_mutex_unlock(&needed); }

__attribute__((unused)) static void come_later(void) {
  CHECK(pthread_atfork(take_needed, release_needed, release_needed) == 0);
}

#if defined(__GLIBC__)
enum { COMES_LATER = 1 };
__attribute__((section(".preinit_array"), used)) static void (*const before_constructors)(void) = come_later;
#else
enum { COMES_LATER = 0 };
#endif

static void *allocate_while_forking(void *unused) {
  pthread_mutex_lock(&needed);
  int before = forks;
  is_held = 1;
  while (forks == before) sched_yield(); /* our handler has run */
  use_heap();
  is_held = 0;
  pthread_mutex_unlock(&needed);
  return unused;
}

static void deadlock_ends(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, allocate_while_forking, NULL) == 0);
  while (!is_held) sched_yield();
  fork_once();
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_COUNT(locks_held, ==, 0);
  fork_once();
}

/* Signals that end a wait do not restart the time that a thread waits. The scavenger does not run, because its signals
   are blocked: it would end the wait. */
enum { SIGNAL_EVERY_NS = 20000000 };
#ifndef sigev_notify_thread_id /* older glibcs do not name it */
#define sigev_notify_thread_id _sigev_un._tid
#endif

static void be_interrupted(int signal) { (void)signal; }

static void *allocate_beside_signals(void *unused) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
  const struct itimerspec every = {{0, SIGNAL_EVERY_NS}, {0, SIGNAL_EVERY_NS}};
  timer_t timer;
  event.sigev_notify_thread_id = (pid_t)os_thread_id();
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0);
  allocate_while_forking(unused);
  CHECK(timer_delete(timer) == 0);
  return unused;
}

static void deadlock_ends_beside_signals(void) {
  pthread_t thread;
  alarm(PATIENCE_S);
  options.scavenger = false;
  is_held = 0;
  CHECK(signal(SIGUSR2, be_interrupted) != SIG_ERR);
  CHECK(pthread_create(&thread, NULL, allocate_beside_signals, NULL) == 0);
  while (!is_held) sched_yield();
  fork_once();
  CHECK(pthread_join(thread, NULL) == 0);
}

/* Gets the lock when the fork is done. A child that is born later would find the lock held. */
static void *wait_for_copy(void *unused) {
  int before = forks;
  is_held = 1;
  while (forks == before) sched_yield();
  lock_take(&pages_lock);
  while (copies_long) sched_yield();
  lock_release(&pages_lock);
  return unused;
}

static void live_unfrozen(void) {
  tslab_stats_global now;
  CHECK(tslab_stats(&now, sizeof now) == 0);
  CHECK_COUNT(now.frozen_bytes, ==, 0);
  live_as_child();
}

static void child_of_long_copy_is_whole(void) {
  pthread_t thread;
  is_held = 0;
  CHECK(pthread_create(&thread, NULL, wait_for_copy, NULL) == 0);
  while (!is_held) sched_yield();
  copies_long = true;
  CHECK(in_child(live_unfrozen) == 0);
  copies_long = false;
  CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- in a signal handler that interrupted a fork ----------------------------------------------------------------- */

/* The outer fork waits for glibc's list of streams when the signal comes. Before glibc 2.36 handlers of fork run under
 * a lock that the inner fork needs, too. */
#if defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 36)
extern void _IO_list_lock(void), _IO_list_unlock(void); /* no header declares them */

static void *fork_beside(void *unused) {
  is_held = 1;
  fork_once();
  return unused;
}

static void *flush(void *unused) {
  CHECK(fflush(NULL) == 0);
  return unused;
}

static void fork_within_fork(void) {
  pthread_t thread;
  is_held = 0;
  _IO_list_lock();
  CHECK(pthread_create(&thread, NULL, fork_beside, NULL) == 0);
  while (!is_held) sched_yield();
  usleep(50000); /* the fork almost certainly waits by now */
  CHECK(pthread_kill(thread, SIGUSR1) == 0);
  usleep(50000);
  _IO_list_unlock();
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(pthread_create(&thread, NULL, flush, NULL) == 0 && pthread_join(thread, NULL) == 0);
  fork_once();
}
#else
static void fork_within_fork(void) {}
#endif
#else
static void fork_within_fork(void) {}
#endif

/* ---- at an abort ------------------------------------------------------------------------------------------------- */

static void allocate_and_exit(int signal) {
  (void)signal;
  use_heap();
  _exit(7);
}

static void misuse_under_lock(void) {
  signal(SIGABRT, allocate_and_exit);
  close(2);
  lock_take(&current_heap->lock);
  misuse_freed(inherited[0]);
  lock_release(&current_heap->lock);
}

int main(void) {
  alarm(PATIENCE_S);
  CHECK(signal(SIGUSR1, fork_in_handler) != SIG_ERR);
  for (int i = 0; i < BLOCKS; i++) inherited[i] = tslab_malloc(100);
  fork_once();
  interrupted_under(&current_heap->lock);
  interrupted_under(&pages_lock);
  interrupted_under(&tree_lock);
  interrupted_under(&start_lock);
  interrupted_beside_fork(&current_heap->lock);
  interrupted_beside_fork(&pages_lock);
  interrupted_beside_fork(&epoch_gates[0].lock);
  interrupted_while_publishing();
  meets_many_forks(&tree_lock);
  common_heap_comes_last();
  child_beside_long_hold_is_whole(&epoch_gates[EPOCH_GATES - 1].lock);
  child_beside_long_hold_is_whole(&profile_reading);
  child_beside_long_hold_is_whole(&pace_lock);
  if (COMES_LATER) deadlock_ends();
  if (COMES_LATER) CHECK(in_child(deadlock_ends_beside_signals) == 0);
  if (COMES_LATER) child_of_long_copy_is_whole();
  fork_within_fork();
  ends_with_7(misuse_under_lock);
  ends_with_7(exit_under_lock);
  ends_with_7(exit_beside_fork);
  return 0;
}
