/* filtered: after start, a seccomp filter lets pass only madvise, mmap, munmap, mremap, mprotect, futex, membarrier and
 * clocks (and what this test needs to say how it ended); everything else fails with EPERM. The allocator goes on, in
 * threads too, and gives memory back.
 *  filtered        as above
 *  filtered kill   everything else ends the process; started with TSLAB_SCAVENGER=0 and TSLAB_PUBLISH=0 */
#include "../epochs.h"
#include "filter.h"
#include "memory.h"

#include <pthread.h>
#include <time.h>

enum { THREADS = 2, MOST = 1 << 20 };

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

static void use_epochs(void) {
  const tslab_epoch first = open_epoch("first", TSLAB_EPOCH_DESTROYABLE);
  for (int round = 0; round < 3; round++) {
    const tslab_epoch e = open_options((tslab_epoch_options){
        .label = "other", .flags = TSLAB_EPOCH_DESTROYABLE, .prefault_bytes = 10 * GRANULE});
    CHECK(e != 0);
    for (size_t size = 16; size < MOST; size *= 3) {
      block_in(first, size);
      block_in(e, size);
    }
    CHECK(tslab_epoch_enter(e) == 0);
    tslab_free(block_here(MOST));
    CHECK(tslab_epoch_leave(e) == 0);
    CHECK(tslab_epoch_destroy(e, NULL) == 0);
    CHECK(tslab_epoch_reset(first, NULL) == 0);
  }
  CHECK(tslab_epoch_close(first, NULL) == 0);
}

static void *work(void *argument) {
  tslab_free(tslab_malloc(10));
  pthread_barrier_wait(&barrier); /* glibc must have started the thread before anything is forbidden */
  pthread_barrier_wait(&barrier);
  use_heap((uintptr_t)argument + 1);
  use_epochs();
  return NULL;
}

static bool install(bool kills) {
  if (!kills) return install_filter(SECCOMP_FILTER_FLAG_TSYNC, (const int[FILTER_MORE]){-1});
  const int more[FILTER_MORE] = {SYS_rt_sigprocmask, -1}; /* glibc blocks signals when a thread ends */
  return install_filter_with(SECCOMP_RET_KILL_PROCESS, SECCOMP_FILTER_FLAG_TSYNC, more);
}

int main(int argc, char **argv) {
  const bool kills = argc == 2 && strcmp(argv[1], "kill") == 0;
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  tslab_free(tslab_malloc(10));
  pthread_barrier_wait(&barrier);
  if (!install(kills)) {
    printf("skipped: seccomp is not allowed here\n");
    return SKIPPED;
  }
  pthread_barrier_wait(&barrier);
  use_heap(100);
  use_epochs();
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  if (kills) return 0; /* statistics ask for resident memory */
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
