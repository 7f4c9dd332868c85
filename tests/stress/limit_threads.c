/* limit_threads: a process begins under a limit, fills most of it, and frees all. Then there is room for the stacks of
 * threads again. The library does not see such a limit come. */
#include "each_limit.h"

#include <pthread.h>
#include <sys/syscall.h>

enum { THREADS = 15, BLOCK = 1024000 };
#define MIB ((size_t)1 << 20)
#define LIMIT (300 * MIB)
#define LIST  (180 * MIB)

static pthread_barrier_t all;
static void *wait_for_all(void *unused) {
  pthread_barrier_wait(&all);
  return unused;
}

static int under(int resource) {
  const struct rlimit limit = {LIMIT, LIMIT};
  pthread_t threads[THREADS];
  void *list = NULL;
  CHECK(syscall(SYS_prlimit64, 0, resource, &limit, NULL) == 0);
  CHECK_COUNT(fill_list(&list, BLOCK, LIST), >=, LIST);
  free_list(&list);
  CHECK(pthread_barrier_init(&all, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++) CHECK_COUNT(pthread_create(&threads[i], NULL, wait_for_all, NULL), ==, 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}

int main(void) { return under_each_limit(under); }
