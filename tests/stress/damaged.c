/* damaged: a program frees blocks twice or writes to them after their free, at random, and goes on
 * (TSLAB_ON_MISUSE=report), while every malloc is a sample (TSLAB_SAMPLE=1) and samples detach lists. malloc never
 * fails because of that, and no loop runs for ever. */
#include "../check.h"

enum { LIVE = 4000, SIZE = 100, LARGE = 6000, BATCH = 600 };

static void spoil_at_random(bool free_twice) {
  static void *blocks[LIVE];
  uint64_t random = 1;
  int live = 0;
  for (int turn = 0; turn < 200000 / TEST_SCALE; turn++) {
    const uint64_t r = check_random(&random);
    if (r % 2 == 0 && live < LIVE) {
      CHECK((blocks[live] = tslab_malloc(SIZE)) != NULL);
      memset(blocks[live++], 1, SIZE);
    } else if (live > 0) {
      void *const block = blocks[(r >> 8) % (unsigned)live];
      blocks[(r >> 8) % (unsigned)live] = blocks[live - 1];
      live--;
      tslab_free(block);
      if ((r >> 40) % 100 != 0) continue;
      if (free_twice) tslab_free(block);
      else ((volatile uint64_t *)block)[1] = 0;
    }
  }
}

/* One of a batch is freed twice, at every place where the list may be detached next. */
static void rings(void) {
  static void *blocks[BATCH];
  for (int twice = 1; twice < 400; twice += TEST_SCALE) {
    for (int i = 0; i < BATCH; i++) CHECK((blocks[i] = tslab_malloc(LARGE)) != NULL);
    for (int i = 0; i < twice; i++) tslab_free(blocks[i]);
    tslab_free(blocks[twice - 1]);
    for (int i = twice; i < BATCH; i++) tslab_free(blocks[i]);
  }
}

int main(void) {
  spoil_at_random(true);
  spoil_at_random(false);
  rings();
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.misuses, >, 0);
  CHECK_COUNT(stats.live_blocks, <=, stats.allocations);
  return 0;
}
