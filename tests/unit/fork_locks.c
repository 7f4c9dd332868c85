/* fork_locks: a signal handler that interrupted a thread under one of our locks, or in a fork, may fork. A thread that
 * waits for our locks while it holds one that the forking thread needs ends the wait. A handler of SIGABRT may
 * allocate, whatever the library was doing when it found the misuse. In each case the child has a heap that works. */
#include "unit.h"

#include "epoch/scope.h"
#include "heap/fast.h"
#include "heap/misuse.h"
#include <pthread.h>

enum { BLOCKS = 300, PATIENCE_S = 60 };

static void *inherited[BLOCKS];

static void use_heap(void) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(i * i + 1)) != NULL);
  for (size_t i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
}

static void live_as_child(void) {
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

/* Another thread forks meanwhile: it has glibc's list of streams, and waits for the interrupted thread's lock. */
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
  usleep(50000); /* as good as certainly it waits */
  raise(SIGUSR1);
  lock_release(lock);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_COUNT(locks_held, ==, 0);
  fork_once();
}

/* ---- while another thread holds what fork needs ------------------------------------------------------------------ */

/* The program's handlers run after ours, so these stand for libc, which takes locks of its own there. glibc runs
 * preinit_array before any constructor; other libcs do not know it. */
static pthread_mutex_t needed = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int forks, is_held;

static void take_needed(void) {
  forks++;
  pthread_mutex_lock(&needed);
}
static void release_needed(void) { pthread_mutex_unlock(&needed); }

#if defined(__GLIBC__)
enum { COMES_LATER = 1 };
static void come_later(void) { CHECK(pthread_atfork(take_needed, release_needed, release_needed) == 0); }
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
  usleep(50000); /* as good as certainly it waits */
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
  lock_take(&current_part->lock);
  misuse_freed(inherited[0]);
  lock_release(&current_part->lock);
}

int main(void) {
  alarm(PATIENCE_S);
  CHECK(signal(SIGUSR1, fork_in_handler) != SIG_ERR);
  for (int i = 0; i < BLOCKS; i++) inherited[i] = tslab_malloc(100);
  fork_once();
  interrupted_under(&current_part->lock);
  interrupted_under(&pages_lock);
  interrupted_under(&tree_lock);
  interrupted_beside_fork(&current_part->lock);
  interrupted_beside_fork(&pages_lock);
  if (COMES_LATER) deadlock_ends();
  fork_within_fork();
  const int status = in_child(misuse_under_lock);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  return 0;
}
