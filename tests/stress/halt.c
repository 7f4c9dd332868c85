/* halt: once tslab_epoch_close has returned, a thread inside goes on in epoch 0, from any point at which the close
 * halted its chunk. All its allocations are samples (TSLAB_SAMPLE=1), since these move a chunk's end. */
#include "../check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 3000 / TEST_SCALE, BLOCKS = 40000, AFTER = 100, SPIN_MOST = 20000 };

static _Atomic tslab_epoch epoch; /* 0: none to enter */
static _Atomic bool is_inside, is_closed, has_left, stop;
static unsigned rounds_late;

/* Allocates until AFTER mallocs began after the close had returned. Returns how many of these the epoch served. Frees
 * nothing meanwhile: an epoch that reuses memory turns to lists, which may last beyond its close. */
static unsigned allocate_past_close(tslab_epoch e, void *blocks[BLOCKS], int *count) {
  unsigned late = 0;
  for (int after = 0; after < AFTER;) {
    while (*count >= BLOCKS - AFTER && !atomic_load(&is_closed)) {} /* the rest is for after */
    const bool began_after = atomic_load(&is_closed);
    void *const block = blocks[(*count)++] = tslab_malloc(32);
    CHECK(block != NULL);
    if (!began_after) continue;
    after++;
    late += tslab_epoch_of(block) == e;
  }
  return late;
}

static void *live_inside(void *unused) {
  static void *blocks[BLOCKS];
  while (!atomic_load(&stop)) {
    const tslab_epoch e = atomic_exchange(&epoch, 0);
    if (e == 0) continue;
    int count = 0;
    CHECK(tslab_epoch_enter(e) == 0);
    atomic_store(&is_inside, true);
    rounds_late += allocate_past_close(e, blocks, &count) != 0;
    while (count > 0) tslab_free(blocks[--count]);
    CHECK(tslab_epoch_leave(e) == 0);
    atomic_store(&has_left, true);
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  CHECK(tslab_epoch_close(tslab_epoch_open("halt"), NULL) == 0); /* the first of a label may turn to lists, too */
  CHECK(pthread_create(&thread, NULL, live_inside, NULL) == 0);
  uint64_t random = 1;
  for (int round = 0; round < ROUNDS; round++) {
    atomic_store(&is_inside, false);
    atomic_store(&is_closed, false);
    atomic_store(&has_left, false);
    const tslab_epoch e = tslab_epoch_open("halt");
    CHECK(e != 0);
    atomic_store(&epoch, e);
    while (!atomic_load(&is_inside)) {}
    for (volatile uint64_t spin = check_random(&random) % SPIN_MOST; spin > 0; spin--) {}
    CHECK(tslab_epoch_close(e, NULL) == 0);
    atomic_store(&is_closed, true);
    while (!atomic_load(&has_left)) {}
  }
  atomic_store(&stop, true);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_COUNT(rounds_late, ==, 0);
  return 0;
}
