/* mix: random calls from 1 to 16 threads, sizes 0 to 64 MiB, blocks sent to other threads and freed there.
 *
 * Checked: every byte of a block keeps its canary until the block is freed, realloc keeps the content, calloc's memory
 * is zero, no two blocks in use share a byte (by a shadow of our own), tslab_stats' totals are our own totals, and in
 * the end all but 1 MiB has gone back to the kernel.                                                      mix [long] */
#include "shadow.h"

#include "../check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 16, SLOTS = 600, INBOX = 64 };
#define CROWDED ((size_t)192 << 20) /* bytes in use above which no more blocks over 256 KiB are taken */

struct block {
  unsigned char *start;
  size_t usable;
  uint64_t seed;
};

static struct worker {
  pthread_t thread;
  uint64_t random;
  uint64_t allocations, frees; /* tslab_stats must report these */
  struct block slots[SLOTS];
  pthread_mutex_t lock; /* of the inbox */
  struct block inbox[INBOX];
  unsigned inbox_count;
} workers[THREADS];

static unsigned threads;
static uint64_t calls_a_thread;
static _Atomic size_t bytes_in_use; /* relaxed, for the reason given in shadow.c */

static void count_in_use(size_t bytes) { atomic_fetch_add_explicit(&bytes_in_use, bytes, memory_order_relaxed); }
static size_t in_use(void) { return atomic_load_explicit(&bytes_in_use, memory_order_relaxed); }

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static uint64_t canary(uint64_t seed, size_t word) { return seed + word * UINT64_C(0x9E3779B97F4A7C15); }

static void fill(const struct block *b) {
  const size_t words = b->usable / 8;
  for (size_t i = 0; i < words; i++) ((uint64_t *)(void *)b->start)[i] = canary(b->seed, i);
  const uint64_t last = canary(b->seed, words);
  memcpy(b->start + words * 8, &last, b->usable % 8);
}

static void check_fill(const struct block *b, size_t size) {
  const size_t words = size / 8;
  for (size_t i = 0; i < words; i++) CHECK(((const uint64_t *)(const void *)b->start)[i] == canary(b->seed, i));
  const uint64_t last = canary(b->seed, words);
  CHECK(memcmp(b->start + words * 8, &last, size % 8) == 0);
}

static size_t random_size(struct worker *w) {
  const uint64_t kind = check_random(&w->random) % 10000, r = check_random(&w->random);
  if (kind < 8000) return r % 1041;
  if (kind < 9700) return r % 40000;
  if (kind < 9970 || in_use() > CROWDED) return r % 262144;
  if (kind < 9998) return r % ((size_t)4 << 20);
  return r % (((size_t)64 << 20) / TEST_SCALE + 1);
}

static void take(struct worker *w, struct block *b, unsigned char *start) {
  *b = (struct block){start, tslab_malloc_usable_size(start), check_random(&w->random)};
  shadow_claim(b->start, b->usable);
  count_in_use(b->usable);
  fill(b);
}

static void allocate(struct worker *w, struct block *b) {
  const size_t size = random_size(w), alignment = (size_t)8 << check_random(&w->random) % 14;
  void *start = NULL;
  switch (check_random(&w->random) % 8) {
  case 0:
    start = tslab_calloc(size, 1);
    CHECK(start != NULL);
    if (size > 0) CHECK(*(char *)start == 0 && memcmp(start, (char *)start + 1, size - 1) == 0);
    break;
  case 1:
    start = tslab_memalign(alignment, size);
    CHECK((uintptr_t)start % alignment == 0);
    break;
  case 2:
    CHECK(tslab_posix_memalign(&start, alignment, size) == 0);
    CHECK((uintptr_t)start % alignment == 0);
    break;
  case 3: start = tslab_realloc(NULL, size); break;
  default: start = tslab_malloc(size); break;
  }
  CHECK(start != NULL && tslab_owns(start));
  w->allocations++;
  take(w, b, start);
  CHECK_COUNT(b->usable, >=, size);
}

static void release(struct worker *w, struct block *b) {
  check_fill(b, b->usable);
  shadow_release(b->start, b->usable);
  count_in_use(0 - b->usable);
  tslab_free(b->start);
  w->frees++;
  b->start = NULL;
}

static void resize(struct worker *w, struct block *b) {
  const size_t size = random_size(w) + 1;
  struct block old = *b;
  shadow_release(old.start, old.usable);
  count_in_use(0 - old.usable);
  unsigned char *start = tslab_realloc(old.start, size);
  CHECK(start != NULL);
  if (start != old.start) {
    w->allocations++;
    w->frees++;
  }
  old.start = start;
  check_fill(&old, old.usable < size ? old.usable : size);
  take(w, b, start);
  CHECK_COUNT(b->usable, >=, size);
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static void send(struct worker *to, struct block *b) {
  pthread_mutex_lock(&to->lock);
  if (to->inbox_count < INBOX) {
    to->inbox[to->inbox_count++] = *b;
    b->start = NULL;
  }
  pthread_mutex_unlock(&to->lock);
}

/* Frees or keeps what others sent. */
static void receive(struct worker *w) {
  struct block got[INBOX];
  pthread_mutex_lock(&w->lock);
  const unsigned count = w->inbox_count;
  memcpy(got, w->inbox, count * sizeof *got);
  w->inbox_count = 0;
  pthread_mutex_unlock(&w->lock);
  for (unsigned i = 0; i < count; i++) {
    struct block *slot = &w->slots[check_random(&w->random) % SLOTS];
    if (i % 2 == 0 && !slot->start) *slot = got[i];
    else release(w, &got[i]);
  }
}

static void *work(void *argument) {
  struct worker *const w = argument;
  for (uint64_t i = 0; i < calls_a_thread; i++) {
    struct block *b = &w->slots[check_random(&w->random) % SLOTS];
    const unsigned what = check_random(&w->random) % 16;
    if (!b->start) allocate(w, b);
    else if (what < 3) resize(w, b);
    else if (what < 7 && threads > 1) send(&workers[check_random(&w->random) % threads], b);
    else release(w, b);
    if (i % 64 == 0) receive(w);
  }
  /* Half of what is left outlives its thread. */
  for (unsigned i = 0; i < SLOTS; i += 2)
    if (w->slots[i].start) release(w, &w->slots[i]);
  return NULL;
}

static void run(unsigned count, uint64_t calls) {
  tslab_stats_global before, after;
  threads = count;
  calls_a_thread = calls / count;
  CHECK(tslab_stats(&before, sizeof before) == 0);
  for (unsigned i = 0; i < count; i++)
    workers[i] = (struct worker){.random = count * 1000 + i + 1, .lock = PTHREAD_MUTEX_INITIALIZER};
  for (unsigned i = 0; i < count; i++) CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  for (unsigned i = 0; i < count; i++) CHECK(pthread_join(workers[i].thread, NULL) == 0);
  uint64_t allocations = 0, frees = 0, left = in_use();
  for (unsigned i = 0; i < count; i++) {
    receive(&workers[i]);
    for (unsigned j = 0; j < SLOTS; j++)
      if (workers[i].slots[j].start) release(&workers[i], &workers[i].slots[j]);
    allocations += workers[i].allocations;
    frees += workers[i].frees;
  }
  CHECK_COUNT(in_use(), ==, 0);
  CHECK_COUNT(allocations, ==, frees);

  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.allocations - before.allocations, ==, allocations);
  CHECK_COUNT(after.frees - before.frees, ==, frees);
  CHECK_COUNT(after.live_blocks, ==, before.live_blocks);
  CHECK_COUNT(after.live_bytes, ==, before.live_bytes);

  tslab_purge();
  size_t resident = shadow_resident();
  for (int i = 0; i < 100 && resident > 1 << 20; i++) { /* the scavenger may be in the middle of giving back a piece */
    usleep(20000);
    tslab_purge();
    resident = shadow_resident();
  }
  CHECK(tslab_stats(&after, sizeof after) == 0);
  printf("%2u threads: %llu allocations, %llu KiB outlived them; then %zu KiB resident, %llu KiB dirty\n", count,
         (unsigned long long)allocations, (unsigned long long)left >> 10, resident >> 10,
         (unsigned long long)after.free_dirty_bytes >> 10);
  CHECK_COUNT(after.free_dirty_bytes, <=, 1 << 20);
  CHECK_COUNT(resident, <=, 1 << 20);
}

int main(int argc, char **argv) {
  const int is_long = argc > 1 && strcmp(argv[1], "long") == 0;
  const uint64_t calls = is_long ? 40000000 / TEST_SCALE : 600000 / TEST_SCALE;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (unsigned count = 1; count <= THREADS; count *= 2) run(count, calls);
  run(3, calls);
  return 0;
}
