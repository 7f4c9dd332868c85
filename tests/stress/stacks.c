/* stacks: when threads end, glibc frees what belongs to their cached stacks under a lock that pthread_create takes too.
 * A free that makes a thread then, because the process is old enough to be published, would wait for itself
 * for ever. */
#include "../check.h"

#include <pthread.h>

enum { THREADS = 40, ROUNDS = 3 };

static pthread_barrier_t barrier;

static void *wait_for_all(void *unused) {
  pthread_barrier_wait(&barrier);
  return unused;
}

int main(void) {
  pthread_attr_t large;
  CHECK(pthread_attr_init(&large) == 0 && pthread_attr_setstacksize(&large, 8 << 20) == 0); /* 40 MiB stay cached */
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], &large, wait_for_all, NULL) == 0);
    usleep(1200000); /* a process is published from its second second on */
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  }
  return 0;
}
