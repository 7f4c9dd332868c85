/* filtered_profile: a thread has a filter for system calls when another thread starts the heap profile. Its samples
 * have their stacks, over several pages, without rt_sigprocmask, which ends the process here. */
#include "filter.h"
#include "memory.h"

#include "tslab/tslab.h"
#include <pthread.h>

enum { LEVELS = 16, FRAME = 1500, BYTES = 64 << 10 };

static pthread_barrier_t turns;
static uint32_t deepest;

static void *start_profile(void *unused) {
  pthread_barrier_wait(&turns);
  CHECK(tslab_profile_interval(4096, NULL) == 0);
  pthread_barrier_wait(&turns);
  pthread_barrier_wait(&turns); /* to end, the thread makes calls that its neighbour's filter does not let pass */
  return unused;
}

/* A recursion with frame pointers. */
static unsigned descend(unsigned levels) {
  volatile char room[FRAME];
  room[0] = 0;
  if (levels > 0) return descend(levels - 1) + (unsigned char)room[0];
  for (int i = 0; i < 100; i++) {
    void *volatile block = tslab_malloc(BYTES);
    CHECK(block != NULL);
    tslab_free(block);
  }
  return (unsigned char)room[0];
}

static int look(const tslab_profile_site *site, void *unused) {
  (void)unused;
  if (site->depth > deepest) deepest = site->depth;
  return 0;
}

/* Ends the process at the first rt_sigprocmask. */
static bool forbid_masks(void) {
  return filter_call(SYS_rt_sigprocmask, SECCOMP_RET_KILL_PROCESS, 0) == 0;
}

int main(void) {
  pthread_t other;
  if (tslab_profile_interval(0, NULL) == ENOTSUP) return 0; /* built without telemetry */
  tslab_free(tslab_malloc(10));
  CHECK(pthread_barrier_init(&turns, NULL, 2) == 0 && pthread_create(&other, NULL, start_profile, NULL) == 0);
  if (!forbid_masks()) {
    printf("skipped: seccomp is not allowed here\n");
    return SKIPPED;
  }
  pthread_barrier_wait(&turns);
  pthread_barrier_wait(&turns);
  descend(LEVELS);
  CHECK(tslab_profile_each(look, NULL) == 0);
  CHECK_COUNT(deepest, >, LEVELS);
  printf("a stack of %u frames\n", deepest);
  fflush(stdout);
  _exit(0); /* exit could make calls that the filter does not let pass */
}
