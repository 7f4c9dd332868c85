/* scenarios: what is explored. Each is a few calls of two or three threads on few blocks, and what must hold after
 * every schedule.
 *
 * Blocks are of 8 KiB, eight to a slab, which are linked one by one and pass every border within a few calls; in epochs
 * of 32 KiB, eight to a slab of four granules, or of 5,000 bytes in chunks. */
#include "explore.h"

#include "base/bits.h"
#include "base/options.h"
#include "epoch/epoch.h"
#include "epoch/status.h"
#include "heap/heap.h"
#include "heap/lists.h"
#include "slab/reserve.h"
#include "tslab/tslab.h"

#define SMALL  ((size_t)8 << 10)
#define MEDIUM ((size_t)32 << 10)
#define BUMPED ((size_t)5000)
#define HELD   12

/* What each thread holds; the last are the main thread's. */
static struct held {
  void *block;
  size_t size;
} held[THREADS + 1][HELD];

static unsigned me(void) { return explore_self() < 0 ? THREADS : (unsigned)explore_self(); }

static uint64_t pattern_of(const void *block) { return (uintptr_t)block * 3 + 1; }

/* Both ends of the block, which is what its neighbours or a list could reach. */
static void mark(void *block, size_t size) {
  uint64_t *words = block;
  words[0] = words[1] = words[size / 8 - 1] = pattern_of(block);
}

static void *keep(unsigned i, void *block, size_t size) {
  EXPECT(block != NULL && held[me()][i].block == NULL);
  mark(block, size);
  held[me()][i] = (struct held){block, size};
  return block;
}

static void take(unsigned i, size_t size) { keep(i, tslab_malloc(size), size); }

static void give_of(unsigned thread, unsigned i) {
  struct held h = held[thread][i];
  const uint64_t *words = h.block;
  EXPECT(h.block != NULL);
  uint64_t pattern = pattern_of(h.block);
  EXPECT(words[0] == pattern && words[1] == pattern && words[h.size / 8 - 1] == pattern);
  held[thread][i].block = NULL;
  tslab_free(h.block);
}

static void give(unsigned i) { give_of(me(), i); }

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

static unsigned count_held(void) {
  unsigned count = 0;
  for (unsigned t = 0; t <= THREADS; t++)
    for (unsigned i = 0; i < HELD; i++) {
      if (!held[t][i].block) continue;
      count++;
      EXPECT(*(uint64_t *)held[t][i].block == pattern_of(held[t][i].block));
      for (unsigned u = 0; u <= t; u++)
        for (unsigned j = 0; j < (u == t ? i : HELD); j++) EXPECT(held[u][j].block != held[t][i].block);
    }
  return count;
}

/* Blocks that programs hold: in slabs, less those that lists keep, in chunks, and large ones. */
static uint64_t count_live(void) {
  uint64_t live = 0;
  for (struct run *run = pages_first_run(); run; run = pages_next_run(run)) {
    uint64_t word = atomic_load_explicit(&run->word, memory_order_relaxed);
    if (run->kind == RUN_SLAB) live += slab_linked(word) - slab_count(word);
    else if (run->kind == RUN_CHUNK) live += chunk_live(run).blocks;
    else if (run->kind == RUN_LARGE) live++;
    if (run->kind == RUN_SLAB) EXPECT(!(word & SLAB_PENDING));
  }
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_relaxed); p; p = p->next_part) {
    live -= p->remote.count;
    for (unsigned class = 0; class < CLASSES; class++)
      live -= list_totals(p, class).length + p->bins[class].depot_blocks;
  }
  return live;
}

/* Calls of malloc less calls of free, as they were counted on the way. */
static uint64_t count_calls(void) {
  uint64_t live = bump_allocations();
  for (unsigned class = 0; class < CLASSES; class++) {
    struct class_totals totals = {0};
    for (struct part *p = atomic_load_explicit(&all_parts, memory_order_relaxed); p; p = p->next_part)
      heap_totals(p, class, &totals);
    live += totals.allocations - totals.frees - heap_homeless_frees(class);
  }
  return live;
}

static void check_all(void) {
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_relaxed); p; p = p->next_part) part_check(p);
  for (uint32_t i = 1; i <= lifetimes_made(); i++) epoch_check(epoch_at(i));
  pages_check();
}

/* Every block is where it should be; then all go, threads too, and nothing may stay. */
static void finish(void) {
  unsigned count = count_held();
  check_all();
  EXPECT(count_live() == count);
  if (bump_allocations() == 0) EXPECT(count_calls() == count);
  for (unsigned t = 0; t <= THREADS; t++)
    for (unsigned i = 0; i < HELD; i++)
      if (held[t][i].block) give_of(t, i);
  for (int t = 0; t < THREADS; t++) {
    explore_as(t);
    explore_thread_ends();
  }
  explore_as(-1);
  for (uint32_t i = 1; i <= lifetimes_made(); i++)
    if (epoch_state(epoch_at(i)) == EPOCH_OPEN) EXPECT(tslab_epoch_close(epoch_id(epoch_at(i)), NULL) == 0);
  tslab_purge();
  check_all();
  EXPECT(count_live() == 0);
  for (uint32_t i = 1; i <= lifetimes_made(); i++) {
    EXPECT(epoch_state(epoch_at(i)) == EPOCH_ENDED);
    EXPECT(atomic_load_explicit(&epoch_at(i)->lifetime.own, memory_order_relaxed) == 0);
    EXPECT(atomic_load_explicit(&epoch_at(i)->lifetime.charged, memory_order_relaxed) == 0);
  }
  for (struct run *run = pages_first_run(); run; run = pages_next_run(run))
    EXPECT(run->kind == RUN_FREE || run->kind == RUN_META);
  EXPECT(pages_free_dirty() == 0 && reserve_bytes() == 0);
}

/* ---- preparing --------------------------------------------------------------------------------------------------- */

static void be_born(int thread) {
  explore_as(thread);
  tslab_free(tslab_malloc(16));
}

static void all_born(void) {
  options.sample = 0;
  options.publish = 0;
  for (int t = 0; t < THREADS; t++) be_born(t);
}

/* ---- remote free: the owner allocates and frees while two others bring back blocks of its slab ------------------- */

static void remote_free_setup(void) {
  all_born();
  explore_as(0);
  for (unsigned i = 0; i < 6; i++) take(i, SMALL);
}
static void remote_free_0(void) {
  give(0);
  take(6, SMALL);
  take(7, SMALL);
}
static void remote_free_1(void) { /* the second makes 16 KiB, which are not kept back */
  give_of(0, 1);
  give_of(0, 2);
}
static void remote_free_2(void) {
  give_of(0, 3);
  give_of(0, 4);
}

const struct scenario scenarios[] = {
    {"remote-free", remote_free_setup, {remote_free_0, remote_free_1, remote_free_2}, finish, 2},
    {NULL, NULL, {NULL}, NULL, 0},
};
