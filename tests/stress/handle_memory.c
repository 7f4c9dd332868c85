/* handle_memory: there is memory for blocks, but none for another handle, while a second thread destroys the epoch.
 * tslab_handle_alloc then fails and frees its block, which it must do before the epoch may end. */
#include "../epochs.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { GRANULES = 200, ROUNDS = 100000, ROUNDS_MOST = 100 * ROUNDS, FAILURES = 1000 };
enum { INTERRUPTED_US = 30, BETWEEN_US = 60 };
#define MIB ((size_t)1 << 20)

static pthread_t allocator;
static _Atomic tslab_epoch epoch; /* 0: the allocator waits */
static _Atomic bool waits, finished;
static _Atomic unsigned failures;

static void destroy_epoch(tslab_epoch ended) {
  int error;
  while ((error = tslab_epoch_destroy(ended, NULL)) == EBUSY) {
  }
  CHECK(error == 0);
}

static void *allocate(void *unused) {
  while (!finished) {
    void *block;
    const tslab_epoch named = epoch;
    waits = named == 0;
    if (named == 0 || tslab_handle_alloc(named, 64, &block) != 0) continue;
    CHECK(block == NULL && (errno == ENOMEM || errno == ESTALE || errno == ESHUTDOWN));
    failures += errno == ENOMEM;
  }
  return unused;
}

/* Interrupts the allocator in any of its steps, for long enough that the epoch is destroyed meanwhile. */
static void stand_still(int unused) {
  (void)unused;
  const int kept = errno;
  usleep(INTERRUPTED_US);
  errno = kept;
}

static void *interrupt(void *unused) {
  while (!finished) {
    usleep(BETWEEN_US);
    CHECK(pthread_kill(allocator, SIGUSR1) == 0);
  }
  return unused;
}

/* Takes all memory, gives some granules back, no two of which are neighbours, and takes all handles. The next table of
 * handles needs more than one granule, and blocks do not. */
static void use_up_handles(void) {
  static void *kept[GRANULES];
  struct rlimit limit;
  void *block;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = MIB;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  for (unsigned i = 0; i < GRANULES && (kept[i] = tslab_malloc(GRANULE)); i++) {
  }
  while (tslab_malloc(GRANULE)) {
  }
  for (unsigned i = 0; i < GRANULES; i += 2) tslab_free(kept[i]);
  tslab_malloc_trim(0);
  while (tslab_handle_alloc(0, 1, &block)) {
  }
}

int main(void) {
  const struct sigaction action = {.sa_handler = stand_still, .sa_flags = SA_RESTART};
  pthread_t interrupter;
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  epoch = open_epoch("handles", TSLAB_EPOCH_DESTROYABLE);
  CHECK(pthread_create(&allocator, NULL, allocate, NULL) == 0);
  CHECK(pthread_create(&interrupter, NULL, interrupt, NULL) == 0);
  usleep(10000); /* the allocator has memory of its own in the epoch */
  destroy_epoch(atomic_exchange(&epoch, 0));
  while (!waits) usleep(1000);
  use_up_handles();
  epoch = open_epoch("handles", TSLAB_EPOCH_DESTROYABLE);
  for (unsigned i = 0; i < ROUNDS || (failures < FAILURES && i < ROUNDS_MOST); i++)
    destroy_epoch(atomic_exchange(&epoch, open_epoch("handles", TSLAB_EPOCH_DESTROYABLE)));
  finished = true;
  CHECK(pthread_join(allocator, NULL) == 0 && pthread_join(interrupter, NULL) == 0);
  CHECK_COUNT(failures, >=, FAILURES);
  return 0;
}
