/* profile_threads: a sample outlives its thread. It keeps the thread's id, and ends when somebody frees its block. That
 * holds for blocks that a thread allocates while it ends, too. Signals change nothing: neither a storm of them, whose
 * handler walks the stack that it interrupted, nor a handler on an alternate stack that allocates samples while its
 * thread waits. After all frees nothing is left, and no call counts twice.
 *
 *  profile_threads [long] */
#include "../check.h"

#include "heap/profile.h"
#include "heap/stack.h"
#include "os/os.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { INTERVAL = 4096, CERTAIN = 64 * INTERVAL, THREADS = 8, KEPT = 60, ROUNDS = 40 / TEST_SCALE + 1 };
enum { STORM_THREADS = 3, STORM_NS = 300000, STORM_SIGNALS = 3000 / TEST_SCALE, HANDLED = 200 };

static struct profile_totals totals(void) {
  lock_take(&profile_lock);
  unsigned live = 0;
  for (uint32_t i = 1; i <= profile_samples_most(); i++) live += profile_sample_at(i) != NULL;
  const struct profile_totals now = profile_totals();
  lock_release(&profile_lock);
  CHECK_COUNT(now.live, ==, live);
  CHECK_COUNT(now.samples, ==, now.frees + now.live);
  return now;
}

/* Returns the thread of the block's sample; 0: it is none. */
static uint32_t thread_of(const void *block) {
  uint32_t found = 0;
  lock_take(&profile_lock);
  for (uint32_t i = 1; i <= profile_samples_most() && !found; i++) {
    const struct profile_sample *const row = profile_sample_at(i);
    if (row && row->block == block) found = row->thread_id;
  }
  lock_release(&profile_lock);
  return found;
}

static size_t size_of(unsigned i) { return i % 3 == 0 ? CERTAIN + i : 10 * i; }

/* ---- threads that end -------------------------------------------------------------------------------------------- */

static struct ended {
  uint32_t id;
  void *blocks[KEPT], *last; /* `last`: allocated while the thread ended */
} ended[THREADS];

static pthread_key_t key;

static void allocate_at_end(void *argument) {
  struct ended *const me = argument;
  tslab_free(tslab_malloc(CERTAIN));
  CHECK((me->last = tslab_malloc(CERTAIN)) != NULL);
}

static void *allocate_and_end(void *argument) {
  struct ended *const me = argument;
  const tslab_epoch epoch = tslab_epoch_open("ends");
  me->id = os_thread_id();
  CHECK(epoch != 0 && pthread_setspecific(key, me) == 0);
  for (unsigned i = 0; i < KEPT; i++) {
    if (i == KEPT / 2) CHECK(tslab_epoch_enter(epoch) == 0);
    CHECK((me->blocks[i] = tslab_malloc(size_of(i))) != NULL);
  }
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
  return NULL;
}

static void *free_of_other(void *argument) {
  struct ended *const other = argument;
  for (unsigned i = 0; i < KEPT; i += 2) tslab_free(other->blocks[i]);
  return NULL;
}

static void run_all(void *(*run)(void *)) {
  pthread_t threads[THREADS];
  for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run, &ended[i]) == 0);
  for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void check_ended(const struct ended *thread, unsigned first) {
  for (unsigned i = first; i < KEPT; i += first + 1) {
    const uint32_t id = thread_of(thread->blocks[i]);
    CHECK(id == thread->id || (id == 0 && size_of(i) < CERTAIN));
  }
  CHECK_COUNT(thread_of(thread->last), ==, thread->id);
}

static void threads_end(void) {
  const uint64_t before = totals().live;
  for (unsigned round = 0; round < ROUNDS; round++) {
    run_all(allocate_and_end);
    for (unsigned i = 0; i < THREADS; i++) check_ended(&ended[i], 0);
    CHECK_COUNT(totals().live, >=, before + THREADS * (KEPT / 3 + 1));
    run_all(free_of_other);
    for (unsigned i = 0; i < THREADS; i++) check_ended(&ended[i], 1);
    for (unsigned i = 0; i < THREADS; i++) {
      for (unsigned b = 1; b < KEPT; b += 2) tslab_free(ended[i].blocks[b]);
      tslab_free(ended[i].last);
    }
    CHECK_COUNT(totals().live, ==, before);
  }
}

/* ---- a storm of signals ------------------------------------------------------------------------------------------ */

#ifndef sigev_notify_thread_id /* older glibcs do not name it */
#define sigev_notify_thread_id _sigev_un._tid
#endif

static _Atomic unsigned signals, signals_wanted;

static void walk(int number) {
  uintptr_t found[STACK_MOST];
  (void)number;
  if (stack_walk(found, STACK_MOST, __builtin_frame_address(0)) > STACK_MOST) _exit(1);
  atomic_fetch_add_explicit(&signals, 1, memory_order_relaxed);
}

static void *sample_in_storm(void *unused) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
  const struct itimerspec every = {{0, STORM_NS}, {0, STORM_NS}};
  void *blocks[KEPT] = {NULL};
  timer_t timer;
  event.sigev_notify_thread_id = (pid_t)os_thread_id();
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0);
  for (unsigned i = 0; atomic_load_explicit(&signals, memory_order_relaxed) < signals_wanted; i++) {
    void **const slot = &blocks[i % KEPT];
    tslab_free(*slot);
    CHECK((*slot = tslab_malloc(size_of(i % KEPT))) != NULL);
    if (i % 7 == 0) CHECK((*slot = tslab_realloc(*slot, size_of(i % 100))) != NULL);
  }
  CHECK(timer_delete(timer) == 0);
  for (unsigned i = 0; i < KEPT; i++) tslab_free(blocks[i]);
  return unused;
}

static void storm(unsigned wanted) {
  const struct sigaction action = {.sa_handler = walk, .sa_flags = SA_RESTART};
  const uint64_t before = totals().live;
  pthread_t threads[STORM_THREADS];
  signals = 0;
  signals_wanted = wanted;
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  for (unsigned i = 0; i < STORM_THREADS; i++) CHECK(pthread_create(&threads[i], NULL, sample_in_storm, NULL) == 0);
  for (unsigned i = 0; i < STORM_THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_COUNT(totals().live, ==, before);
}

/* ---- handlers that allocate -------------------------------------------------------------------------------------- */

static void *handled[HANDLED];
static volatile unsigned handled_count;

static void allocate_in_handler(int number) {
  (void)number;
  tslab_free(tslab_malloc(CERTAIN));
  handled[handled_count] = tslab_malloc(size_of(3 * handled_count));
  handled_count++;
}

/* The thread is in none of the library's functions when a signal comes. */
static void *wait_for_signals(void *bottom) {
  const stack_t alternate = {.ss_sp = bottom, .ss_size = CERTAIN};
  sigset_t one, none;
  CHECK(sigaltstack(&alternate, NULL) == 0);
  sigemptyset(&none);
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  CHECK(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0);
  while (handled_count < HANDLED) {
    CHECK(raise(SIGUSR2) == 0);
    sigsuspend(&none);
  }
  return NULL;
}

static void handlers_allocate(void) {
  const struct sigaction action = {.sa_handler = allocate_in_handler, .sa_flags = SA_ONSTACK};
  const uint64_t before = totals().live;
  void *const bottom = tslab_malloc(CERTAIN); /* frames at both ends of a block that is a sample itself */
  pthread_t thread;
  CHECK(bottom != NULL && sigaction(SIGUSR2, &action, NULL) == 0);
  CHECK(pthread_create(&thread, NULL, wait_for_signals, bottom) == 0 && pthread_join(thread, NULL) == 0);
  CHECK_COUNT(totals().live, ==, before + HANDLED + 1);
  for (unsigned i = 0; i < HANDLED; i++) tslab_free(handled[i]);
  tslab_free(bottom);
  CHECK_COUNT(totals().live, ==, before);
}

int main(int argc, char **argv) {
  const unsigned times = argc > 1 && strcmp(argv[1], "long") == 0 ? 100 : 1;
  CHECK(tslab_profile_interval(INTERVAL, NULL) == 0 && pthread_key_create(&key, allocate_at_end) == 0);
  for (unsigned i = 0; i < times; i++) threads_end();
  storm(times * STORM_SIGNALS);
  handlers_allocate();
  return 0;
}
