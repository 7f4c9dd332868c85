/* filtered: after start, a seccomp filter lets pass only madvise, mmap, munmap, mremap, mprotect, futex, membarrier and
 * clocks (and what this test needs to say how it ended); everything else fails with EPERM. The allocator goes on, in
 * threads too, and gives memory back. */
#include "filter.h"
#include "memory.h"

#include <pthread.h>
#include <time.h>

enum { THREADS = 2 };

static pthread_barrier_t barrier;

static void use_heap(uint64_t random) {
  static const size_t sizes[] = {16, 100, 3000, 30000, 200000, (size_t)3 << 20};
  for (int round = 0; round < 3; round++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      void *list = NULL;
      CHECK_COUNT(fill_list(&list, sizes[i] + check_random(&random) % 16, 30 << 20), >=, 30 << 20);
      void *grown = tslab_realloc(tslab_calloc(1, sizes[i]), sizes[i] * 5);
      CHECK(grown != NULL);
      tslab_free(grown);
      free_list(&list);
    }
}

static void *work(void *argument) {
  tslab_free(tslab_malloc(10));
  pthread_barrier_wait(&barrier); /* glibc must have started the thread before anything is forbidden */
  pthread_barrier_wait(&barrier);
  use_heap((uintptr_t)argument + 1);
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  tslab_free(tslab_malloc(10));
  pthread_barrier_wait(&barrier);
  if (!install_filter(SECCOMP_FILTER_FLAG_TSYNC, (const int[FILTER_MORE]){-1})) {
    printf("skipped: seccomp is not allowed here\n");
    return SKIPPED;
  }
  pthread_barrier_wait(&barrier);
  use_heap(100);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  /* Long enough for a scavenger, if one runs, to do its work under the filter. */
  clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_sec = 1, .tv_nsec = 300000000}, NULL);
  tslab_purge();
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.returned_bytes, >, 0);
  CHECK_COUNT(stats.free_dirty_bytes, <=, 1 << 20);
  CHECK_COUNT(stats.purge_failures, ==, 0);
  return 0;
}
