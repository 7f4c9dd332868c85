/* duel: one thread enters an epoch at the very moment at which another one destroys, resets or closes it. Either the
 * visitor was inside first, and its blocks are as good as ever, or it is told that the epoch has ended.  
 *  duel [long] */
#include "../check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PAIRS = 4, BLOCKS = 24 };
enum ending { DESTROY, RESET, CLOSE, AUTO_CLOSE, ENDINGS };
static const char *const names[ENDINGS] = {"destroy", "reset", "close", "leave of AUTO_CLOSE"};

static struct pair {
  pthread_t owner, visitor;
  unsigned index;
  uint64_t rounds;
  _Atomic tslab_epoch epoch; /* the visitor enters it; the owner publishes it */
  _Atomic uint64_t visited;  /* rounds that the visitor has ended */
  enum ending ending;
  uint64_t entered, refused, busy;
} pairs[PAIRS];

#define EXPECT(p, epoch, condition, expected, got)                                                                     \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      dprintf(2, "%s:%d: does not hold: %s\n  expected: %s; got %lld\n  pair %u, epoch %#llx, against %s\n", __FILE__, \
              __LINE__, #condition, expected, (long long)(got), (p)->index, (unsigned long long)(epoch),               \
              names[(p)->ending]);                                                                                     \
      _exit(1);                                                                                                        \
    }                                                                                                                  \
  } while (0)

/* Two threads of a pair on one core must still meet. */
static void spin(uint64_t times) {
  for (volatile uint64_t i = 0; i < times; i++) {
  }
}

static void visit(struct pair *p, tslab_epoch epoch) {
  tslab_epoch_status s;
  const int rc = tslab_epoch_enter(epoch);
  if (rc != 0) {
    EXPECT(p, epoch, p->ending != RESET && (rc == ESTALE || (p->ending != DESTROY && rc == ESHUTDOWN)),
           "enter: 0, or ESTALE, or ESHUTDOWN of a close", rc);
    p->refused++;
    return;
  }
  p->entered++;
  unsigned char *const block = tslab_malloc(200);
  EXPECT(p, epoch, block != NULL, "a block", 0);
  const tslab_epoch of = tslab_epoch_of(block);
  EXPECT(p, epoch, of == epoch || (of == 0 && p->ending >= CLOSE), "a block of this epoch, or of 0 when it is closing",
         of);
  memset(block, 0x77, 200);
  EXPECT(p, epoch, tslab_epoch_info(epoch, &s) == 0, "info: 0, a thread is inside", ESTALE);
  EXPECT(p, epoch, s.threads_inside >= 1, "info: a thread inside", s.threads_inside);
  for (int i = 0; i < 200; i++) EXPECT(p, epoch, block[i] == 0x77, "the content of a block of who is inside", block[i]);
  tslab_free(block);
  EXPECT(p, epoch, tslab_epoch_leave(epoch) == 0, "leave: 0", EINVAL);
}

static void *visit_all(void *argument) {
  struct pair *const p = argument;
  for (uint64_t round = 1; round <= p->rounds; round++) {
    tslab_epoch epoch;
    while ((epoch = atomic_exchange_explicit(&p->epoch, 0, memory_order_acquire)) == 0) sched_yield();
    visit(p, epoch);
    atomic_store_explicit(&p->visited, round, memory_order_release);
  }
  return NULL;
}

static int end_now(struct pair *p, tslab_epoch epoch) {
  switch (p->ending) {
  case DESTROY: return tslab_epoch_destroy(epoch, NULL);
  case RESET: return tslab_epoch_reset(epoch, NULL);
  case CLOSE: return tslab_epoch_close(epoch, NULL);
  default: return tslab_epoch_leave(epoch);
  }
}

static void *own_all(void *argument) {
  struct pair *const p = argument;
  uint64_t random = p->index + 1;
  tslab_epoch epoch = 0;
  for (uint64_t round = 1; round <= p->rounds; round++) {
    unsigned char *blocks[BLOCKS];
    tslab_epoch_status s;
    if (epoch == 0) p->ending = (enum ending)(check_random(&random) % ENDINGS);
    const tslab_epoch_options options = {.struct_size = sizeof options,
                                         .flags = p->ending == AUTO_CLOSE ? TSLAB_EPOCH_AUTO_CLOSE
                                                                          : TSLAB_EPOCH_DESTROYABLE};
    if (epoch == 0) epoch = tslab_epoch_open_with(&options);
    EXPECT(p, epoch, epoch != 0, "an epoch", 0);
    EXPECT(p, epoch, tslab_epoch_enter(epoch) == 0, "enter: 0", -1);
    for (int i = 0; i < BLOCKS; i++) {
      blocks[i] = tslab_malloc((size_t)i * 16 + 1);
      EXPECT(p, epoch, blocks[i] && tslab_epoch_of(blocks[i]) == epoch, "a block of this epoch", i);
      memset(blocks[i], i, (size_t)i * 16 + 1);
    }
    if (p->ending != AUTO_CLOSE) EXPECT(p, epoch, tslab_epoch_leave(epoch) == 0, "leave: 0", -1);

    atomic_store_explicit(&p->epoch, epoch, memory_order_release);
    spin(check_random(&random) % 2000);
    if (check_random(&random) % 4 == 0) sched_yield();
    bool done = false;
    int rc = end_now(p, epoch);
    while (rc == EBUSY && p->ending <= RESET && !done) {
      p->busy++;
      for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j <= i * 16; j++)
          EXPECT(p, epoch, blocks[i][j] == i, "blocks as they were: EBUSY", blocks[i][j]);
      done = atomic_load_explicit(&p->visited, memory_order_acquire) == round;
      sched_yield();
      rc = end_now(p, epoch);
    }
    EXPECT(p, epoch, rc == 0, done ? "0: the visitor had left before" : "0, or EBUSY", rc);
    if (p->ending >= CLOSE)
      for (int i = 0; i < BLOCKS; i++) {
        EXPECT(p, epoch, blocks[i][i * 16] == i, "blocks outlive a close", blocks[i][i * 16]);
        tslab_free(blocks[i]);
      }
    while (atomic_load_explicit(&p->visited, memory_order_acquire) != round) sched_yield();

    rc = tslab_epoch_info(epoch, &s);
    if (p->ending == RESET) {
      EXPECT(p, epoch, rc == 0 && s.live_blocks == 0 && s.threads_inside == 0, "empty after the reset", s.live_blocks);
      if (check_random(&random) % 8) continue; /* the next round resets it again */
      EXPECT(p, epoch, tslab_epoch_destroy(epoch, NULL) == 0, "destroy: 0", -1);
    } else EXPECT(p, epoch, rc == ESTALE, "ESTALE: ended, nobody inside, every block freed", rc);
    epoch = 0;
  }
  if (epoch) EXPECT(p, epoch, tslab_epoch_destroy(epoch, NULL) == 0, "destroy: 0", -1);
  return NULL;
}

static int count_visits(const tslab_epoch_status *status, void *argument) {
  dprintf(2, "still there: epoch %#llx, %llu live blocks\n", (unsigned long long)status->epoch,
          (unsigned long long)status->live_blocks);
  ++*(unsigned *)argument;
  return 0;
}

int main(int argc, char **argv) {
  const uint64_t rounds = argc > 1 && strcmp(argv[1], "long") == 0 ? 2000000 : 40000 / TEST_SCALE;
  tslab_stats_global before, after;
  uint64_t entered = 0, refused = 0, busy = 0;
  unsigned visits = 0;
  CHECK(tslab_stats(&before, sizeof before) == 0);
  for (unsigned i = 0; i < PAIRS; i++) {
    pairs[i].index = i;
    pairs[i].rounds = rounds;
    CHECK(pthread_create(&pairs[i].owner, NULL, own_all, &pairs[i]) == 0);
    CHECK(pthread_create(&pairs[i].visitor, NULL, visit_all, &pairs[i]) == 0);
  }
  for (unsigned i = 0; i < PAIRS; i++) {
    CHECK(pthread_join(pairs[i].owner, NULL) == 0);
    CHECK(pthread_join(pairs[i].visitor, NULL) == 0);
    entered += pairs[i].entered;
    refused += pairs[i].refused;
    busy += pairs[i].busy;
  }
  printf("%llu rounds of %d pairs: %llu visitors entered, %llu were refused; %llu times EBUSY\n",
         (unsigned long long)rounds, PAIRS, (unsigned long long)entered, (unsigned long long)refused,
         (unsigned long long)busy);
  CHECK(entered > 0 && refused > 0);
  CHECK(tslab_epoch_each(count_visits, &visits) == 0);
  CHECK_COUNT(visits, ==, 0);
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.live_blocks, ==, before.live_blocks);
  return 0;
}
