/* lock: one holder at a time; a release wakes a sleeper; lock_try does not wait; a reset lock is free. */
#include "unit.h"

#include "os/lock.h"
#include <pthread.h>
#include <sched.h>

enum { THREADS = 4, ROUNDS = 20000 / TEST_SCALE };

static struct lock lock;
static unsigned long inside, entered; /* plain: the lock protects the numbers */

static void enter(int round) {
  CHECK_COUNT(inside++, ==, 0);
  CHECK(!lock_try(&lock));
  if (round % 64 == 0) sched_yield(); /* other threads stop spinning and sleep */
  entered++;
  inside--;
}

static void *contend(void *unused) {
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 3 != 0 || !lock_try(&lock)) lock_take(&lock);
    enter(i);
    lock_release(&lock);
  }
  return unused;
}

static void *pass_once(void *unused) {
  lock_take(&lock);
  entered++;
  lock_release(&lock);
  return unused;
}

static void run_while_held(void *(*body)(void *), bool held) {
  pthread_t threads[THREADS];
  entered = 0;
  if (held) lock_take(&lock);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
  if (held) {
    /* 2: a thread sleeps, or is about to. */
    while (atomic_load(&lock.word) != 2) sched_yield();
    CHECK_COUNT(entered, ==, 0);
    lock_release(&lock);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_COUNT(lock.word, ==, 0);
}

int main(void) {
  run_while_held(contend, false);
  CHECK_COUNT(entered, ==, THREADS * ROUNDS);
  run_while_held(pass_once, true);
  CHECK_COUNT(entered, ==, THREADS);
  lock_take(&lock);
  lock_reset(&lock);
  CHECK(lock_try(&lock) && !lock_try(&lock));
  return 0;
}
