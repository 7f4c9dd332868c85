/* No piece of 16 KiB, the size of the smallest chunk, ever holds blocks of two epochs, and tslab_epoch_of knows every
 * block's epoch. The test keeps a table of such pieces by address, with the epoch of each. It covers every size class,
 * large blocks, many epochs by turns, in scopes and by id, and several threads at once. */
#include "../epochs.h"

enum { THREADS = 3, EPOCHS = 12, LIVE = 400, SIZES = 256, TABLE = 1 << 17, PIECE = 16 << 10 };

/* Open addressing; an entry stays when its last block goes, so that probing need not repair anything. */
static struct entry {
  uintptr_t piece; /* address / 16 KiB; 0: free */
  tslab_epoch epoch;
  unsigned blocks;
} table[TABLE];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry *entry_of(uintptr_t piece) {
  size_t at = piece * UINT64_C(0x9E3779B97F4A7C15) >> 47;
  while (table[at].piece != piece && table[at].piece != 0) at = (at + 1) % TABLE;
  table[at].piece = piece;
  return &table[at];
}

static void enter_in_table(const void *block, tslab_epoch e) {
  CHECK_COUNT(tslab_epoch_of(block), ==, e);
  const uintptr_t first = (uintptr_t)block / PIECE;
  const uintptr_t last = ((uintptr_t)block + tslab_malloc_usable_size(block) - 1) / PIECE;
  pthread_mutex_lock(&table_lock);
  for (uintptr_t piece = first; piece <= last; piece++) {
    struct entry *const entry = entry_of(piece);
    if (entry->blocks++ == 0) entry->epoch = e;
    CHECK_COUNT(entry->epoch, ==, e);
  }
  pthread_mutex_unlock(&table_lock);
}

/* Called before the free of the block: afterwards the piece may belong to any epoch. */
static void leave_table(const void *block, tslab_epoch e) {
  CHECK_COUNT(tslab_epoch_of(block), ==, e);
  const uintptr_t first = (uintptr_t)block / PIECE;
  const uintptr_t last = ((uintptr_t)block + tslab_malloc_usable_size(block) - 1) / PIECE;
  pthread_mutex_lock(&table_lock);
  for (uintptr_t piece = first; piece <= last; piece++) entry_of(piece)->blocks--;
  pthread_mutex_unlock(&table_lock);
}

static size_t sizes[SIZES];
static unsigned size_count;
static tslab_epoch epochs[EPOCHS]; /* one of them is 0 */
static struct {
  void *block;
  tslab_epoch epoch;
} shared[64]; /* blocks that one thread leaves for another to free */

static void every_size_by_turns(void) {
  static void *blocks[SIZES][EPOCHS][3];
  for (unsigned s = 0; s < size_count; s++)
    for (int k = 0; k < 3; k++)
      for (unsigned e = 0; e < EPOCHS; e++) {
        blocks[s][e][k] = block_in(epochs[e], sizes[s]);
        enter_in_table(blocks[s][e][k], epochs[e]);
      }
  for (unsigned s = 0; s < size_count; s++)
    for (int k = 0; k < 3; k++)
      for (unsigned e = 0; e < EPOCHS; e++) {
        leave_table(blocks[s][e][k], epochs[e]);
        tslab_free(blocks[s][e][k]);
      }
}

static void exchange(unsigned at, void **block, tslab_epoch *epoch) {
  pthread_mutex_lock(&table_lock);
  void *const other = shared[at].block;
  const tslab_epoch of_other = shared[at].epoch;
  shared[at].block = *block;
  shared[at].epoch = *epoch;
  *block = other;
  *epoch = of_other;
  pthread_mutex_unlock(&table_lock);
}

static void *mix(void *seed) {
  struct {
    void *block;
    tslab_epoch epoch;
  } live[LIVE] = {0};
  uint64_t random = *(uint64_t *)seed;
  for (unsigned i = 0; i < 150000 / TEST_SCALE; i++) {
    const unsigned at = (unsigned)(check_random(&random) % LIVE), way = (unsigned)(check_random(&random) % 16);
    if (way == 0) exchange(at % 64, &live[at].block, &live[at].epoch);
    if (live[at].block) {
      leave_table(live[at].block, live[at].epoch);
      tslab_free(live[at].block);
    }
    const tslab_epoch e = live[at].epoch = epochs[check_random(&random) % EPOCHS];
    /* Mostly small sizes: a large block costs time in the kernel. */
    const size_t size = sizes[check_random(&random) % (check_random(&random) % 64 ? 30 : size_count)];
    if (way % 2) {
      live[at].block = block_in(e, size);
    } else {
      CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
      live[at].block = block_here(size);
      CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
    }
    enter_in_table(live[at].block, e);
  }
  for (unsigned at = 0; at < LIVE; at++)
    if (live[at].block) {
      leave_table(live[at].block, live[at].epoch);
      tslab_free(live[at].block);
    }
  return NULL;
}

static void threads_at_once(void) {
  pthread_t threads[THREADS];
  uint64_t seeds[THREADS];
  for (unsigned t = 0; t < THREADS; t++) {
    seeds[t] = t + 1;
    CHECK(pthread_create(&threads[t], NULL, mix, &seeds[t]) == 0);
  }
  for (unsigned t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
  for (unsigned at = 0; at < 64; at++)
    if (shared[at].block) {
      leave_table(shared[at].block, shared[at].epoch);
      tslab_free(shared[at].block);
      shared[at].block = NULL;
    }
}

/* Half of the epochs close on live blocks, and new epochs take their places: no piece holds blocks of an old and a new
   one. */
static void generations(void) {
  enum { ROUNDS = 6, COUNT = 300 };
  static void *pinned[ROUNDS][EPOCHS][COUNT];
  static tslab_epoch old[ROUNDS][EPOCHS];
  for (int round = 0; round < ROUNDS; round++)
    for (unsigned e = 1; e < EPOCHS; e += 2) {
      for (unsigned i = 0; i < COUNT; i++) {
        void *block = block_in(epochs[e], sizes[i % 30]);
        if (i % 10 == 0) enter_in_table(pinned[round][e][i] = block, epochs[e]);
        else tslab_free(block);
      }
      CHECK_COUNT(tslab_epoch_close(epochs[e], NULL), ==, 0);
      old[round][e] = epochs[e];
      epochs[e] = open_epoch("generation", 0);
    }
  for (int round = 0; round < ROUNDS; round++)
    for (unsigned e = 1; e < EPOCHS; e += 2) {
      for (unsigned i = 0; i < COUNT; i += 10) {
        leave_table(pinned[round][e][i], old[round][e]);
        tslab_free(pinned[round][e][i]);
      }
      check_stale(old[round][e]);
    }
}

int main(void) {
  tslab_class_stats class;
  while (tslab_stats_class(size_count, &class, sizeof class) == 0) sizes[size_count++] = class.object_size;
  const size_t large[] = {40000, 65536, 65537, 200000, 1 << 20, 5 << 20};
  for (size_t i = 0; i < sizeof large / sizeof *large; i++) sizes[size_count++] = large[i];
  CHECK_COUNT(size_count, <=, SIZES);
  CHECK_COUNT(size_count, >, 30);
  for (unsigned e = 1; e < EPOCHS; e++) epochs[e] = open_epoch("isolated", 0);
  every_size_by_turns();
  every_size_by_turns(); /* in memory that was used before */
  threads_at_once();
  generations();
  threads_at_once();
  for (unsigned e = 1; e < EPOCHS; e++) {
    CHECK_COUNT(tslab_epoch_close(epochs[e], NULL), ==, 0);
    check_stale(epochs[e]);
  }
  return 0;
}
