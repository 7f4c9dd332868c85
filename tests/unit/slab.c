/* slab: for every class, each block of a slab is linked once and where it belongs; push, take and the purge of holes
 * keep the counts in the slab's word, and live blocks their contents. */
#include "unit.h"

#include "slab/slab.h"

enum { MOST = (int)(GRANULE / 16) };

static struct run *slab;
static size_t size;
static char *blocks[MOST];

static uint64_t word(void) { return atomic_load(&slab->word); }

static void check_word(unsigned count, unsigned linked) {
  CHECK_COUNT(slab_count(word()), ==, count);
  CHECK_COUNT(slab_linked(word()), ==, linked);
}

/* Walks the chain; every block lies on a multiple of the size, is marked free, and appears once. */
static void check_chain(struct chain chain, unsigned char *seen) {
  unsigned count = 0;
  for (char *b = chain.head; b != CHAIN_END; b = block_next(b), count++) {
    CHECK((uintptr_t)b % size == 0 && b >= run_start(slab) && b + size <= run_start(slab) + run_bytes(slab));
    CHECK(block_is_intact(b) && slab_block_of(slab, b) == b && slab_block_of(slab, b + size - 1) == b);
    CHECK_COUNT(seen[(b - run_start(slab)) / 16]++, ==, 0);
  }
  CHECK_COUNT(count, ==, chain.count);
}

static int by_address(const void *a, const void *b) {
  const char *const *x = a, *const *y = b;
  return (*x > *y) - (*x < *y);
}

/* Takes all blocks that were never linked, into blocks[]; they are in address order, and in random order in the
   hardened library. */
static void link_all(unsigned wanted) {
  static unsigned char seen[4 * MOST];
  unsigned total = 0;
  memset(seen, 0, sizeof seen);
  while (slab->unlinked) {
    const struct chain chain = slab_link(slab, wanted);
    CHECK(chain.count >= wanted || !slab->unlinked);
    check_chain(chain, seen);
    for (char *b = chain.head, *next; b != CHAIN_END; b = next) {
      next = block_next(b);
      blocks[total++] = b;
      memset(b, 0x5c, size);
    }
    check_word(0, total);
  }
  CHECK_COUNT(total, ==, slab->capacity);
  bool in_order = true;
  for (unsigned i = 1; i < total; i++) in_order &= blocks[i] > blocks[i - 1];
  CHECK(in_order == !TSLAB_HARDENED || total < 20); /* a few may be in order by chance */
  qsort(blocks, total, sizeof *blocks, by_address);
}

static bool push_one(unsigned i) {
  block_mark_free(blocks[i]);
  return slab_push(slab, blocks[i], blocks[i], 1, &(struct slab_how){0});
}

/* Exactly one push learns that the slab must be folded: the push that reaches the threshold, or the last block's; for
   listed slabs only the last one's. */
static void push_and_take(bool listed) {
  static unsigned char seen[4 * MOST];
  memset(seen, 0, sizeof seen);
  if (listed) atomic_fetch_or(&slab->word, SLAB_LISTED);
  const unsigned told = listed ? slab->capacity : slab->threshold;
  for (unsigned i = 0; i < slab->capacity; i++) {
    CHECK_COUNT(push_one(i), ==, i + 1 == told);
    check_word(i + 1, slab->capacity);
    CHECK_COUNT((word() & SLAB_PENDING) != 0, ==, i + 1 >= told);
  }
  CHECK(slab_all_free(word()));
  atomic_fetch_and(&slab->word, ~SLAB_PENDING);
  const struct chain chain = slab_take(slab, !listed, &(struct slab_how){0});
  CHECK_COUNT((word() & SLAB_LISTED) != 0, ==, !listed);
  CHECK_COUNT(chain.count, ==, slab->capacity);
  check_chain(chain, seen);
  check_word(0, slab->capacity);
  CHECK_COUNT(slab_take(slab, false, &(struct slab_how){0}).count, ==, 0);
  for (unsigned i = 0; i < slab->capacity; i++) memset(blocks[i], 0x5c, size);
}

/* The blocks that start in the first quarter are live. The other pages, which they do not touch, go back with the free
   blocks that start there. */
static void purge_holes(void) {
  const size_t unit = max_size(os_page_size, run_bytes(slab) / 64);
  unsigned live = 0, kept = 0;
  while (live < slab->capacity && blocks[live] < run_start(slab) + run_bytes(slab) / 4) live++;
  const size_t unused = round_down((size_t)(blocks[0] - run_start(slab)), unit); /* the gap */
  const size_t used = round_up((size_t)(blocks[live - 1] + size - run_start(slab)), unit);
  for (unsigned i = live; i < slab->capacity; i++) push_one(i);
  for (unsigned i = live; i < slab->capacity; i++) kept += blocks[i] < run_start(slab) + used;
  atomic_fetch_or(&slab->word, SLAB_PENDING);
  const struct slab_purge purge = slab_purge_holes(slab);
  CHECK_COUNT(purge.bytes, ==, run_bytes(slab) - used + unused);
  CHECK_COUNT(purge.kept, ==, kept);
  CHECK(purge.damaged == NULL);
  check_word(kept, live + kept);
  for (const char *p = run_start(slab) + used; p < run_start(slab) + run_bytes(slab); p++) CHECK_COUNT(*p, ==, 0);
  for (unsigned i = 0; i < live; i++)
    for (size_t at = 0; at < size; at++) CHECK_COUNT(blocks[i][at], ==, 0x5c);

  /* The dropped blocks are linked again; with those that stayed, each free block is on the list once. */
  static unsigned char seen[4 * MOST];
  memset(seen, 0, sizeof seen);
  atomic_fetch_and(&slab->word, ~SLAB_PENDING);
  unsigned again = slab_count(word());
  check_chain(slab_take(slab, false, &(struct slab_how){0}), seen);
  while (slab->unlinked) {
    const struct chain chain = slab_link(slab, 1);
    check_chain(chain, seen);
    again += chain.count;
  }
  CHECK_COUNT(again, ==, slab->capacity - live);
  for (unsigned i = 0; i < live; i++) CHECK_COUNT(seen[(blocks[i] - run_start(slab)) / 16], ==, 0);
  check_word(0, slab->capacity);
}

static void live_and_die(unsigned class) {
  size = class_size(class);
  slab = slab_new(class, 7, NULL);
  CHECK(slab != NULL && slab->kind == RUN_SLAB && slab->class == class && slab->epoch == 7);
  CHECK_COUNT(slab->capacity, >=, 7);
  CHECK_COUNT((slab->capacity + 1u) * size, >, run_bytes(slab) - size); /* a gap and a rest, each less than a block */
  CHECK_COUNT(pages_pagemap()[run_index(slab)], ==, 0);
  slab_set_owner(slab, 4711);
  for (size_t i = 0; i < slab->granules; i++) CHECK_COUNT(pages_pagemap()[run_index(slab) + i], ==, 4711);
  link_all(class % 5 * 10 + 1);
  push_and_take(false);
  push_and_take(true);
  purge_holes();

  char *const start = run_start(slab), *const first = blocks[0];
  if (first > start) CHECK(slab_block_of(slab, first - 1) == NULL);
  CHECK(slab_block_of(slab, first + slab->capacity * size - 1) != NULL);
  pages_free(slab, slab_retire(slab));
  CHECK(pages_run_of(start)->kind == RUN_FREE && pages.runs[granule_of(start)].was == class + 1);
  CHECK_COUNT(pages_pagemap()[granule_of(start)], ==, 0);
}

/* A slab without a taken block returns clean pages; a used one returns dirty pages. */
static void retired_pages_are_dirty_if_used(void) {
  CHECK_COUNT(pages_purge(UINT64_MAX, SIZE_MAX), >, 0);
  slab = slab_new(3, 0, NULL);
  pages_free(slab, slab_retire(slab));
  CHECK_COUNT(pages_free_dirty(), ==, 0);
  slab = slab_new(3, 0, NULL);
  slab_link(slab, 1);
  pages_free(slab, slab_retire(slab));
  CHECK_COUNT(pages_free_dirty(), ==, GRANULE);
}

/* Purged pages are absent until their blocks are linked again or the slab ends, in classes below and above a unit. */
static void holes_are_absent(unsigned class) {
  slab = slab_new(class, 0, NULL);
  const size_t held = pages_totals().held;
  struct slab_how how = {0};
  struct chain chain = slab_link(slab, 1000000);
  CHECK(slab->unlinked == 0 && pages_totals().held == held);
  void *tail = chain.head;
  for (void *b = chain.head; b != CHAIN_END; b = block_next(b)) tail = b;
  slab_push(slab, chain.head, tail, chain.count, &how);
  const struct slab_purge purge = slab_purge_holes(slab);
  const size_t purged = held - pages_totals().held;
  CHECK_COUNT(purged, <=, purge.bytes);
  CHECK_COUNT(purged, >=, purge.bytes / 10 * 9);
  slab_link(slab, 1);
  CHECK_COUNT(pages_totals().held, >, held - purged);
  slab_link(slab, 1000000);
  CHECK_COUNT(pages_totals().held, <=, held);
  CHECK_COUNT(pages_totals().held + 2 * class_size(class) + os_page_size, >=, held); /* the gap and the rest */
  pages_free(slab, slab_retire(slab));
  pages_purge(UINT64_MAX, SIZE_MAX);
  CHECK_COUNT(pages_totals().held, <, GRANULE); /* the tables */
}

/* At a limit a slab with holes goes back as a whole when it ends, because a free run counts as a whole. */
static void a_limit_takes_the_rest(unsigned class) {
  slab = slab_new(class, 0, NULL);
  struct slab_how how = {0};
  const struct chain chain = slab_link(slab, 1000000);
  void *tail = chain.head;
  for (void *b = chain.head; b != CHAIN_END; b = block_next(b)) tail = b;
  const size_t whole = pages_totals().held;
  slab_push(slab, chain.head, tail, chain.count, &how);
  slab_purge_holes(slab);
  slab_link(slab, 1);
  const size_t held = pages_totals().held;
  pages_set_limits(held, SIZE_MAX);
  const bool clean = slab_retire(slab);
  CHECK(clean == (held < whole)); /* a page as large as the slab leaves no holes */
  pages_free(slab, clean);
  CHECK_COUNT(pages_totals().held, <=, held);
  CHECK_COUNT(pages_free_dirty(), ==, clean ? 0 : GRANULE);
  pages_set_limits(SIZE_MAX, SIZE_MAX);
  pages_purge(UINT64_MAX, SIZE_MAX);
}

/* A program wrote to a free block, all of it or only its link. The purge stops there, and says what it met. */
static void purge_stops_at_damage(unsigned class, size_t written) {
  slab = slab_new(class, 0, NULL);
  struct chain chain = slab_link(slab, 1000000);
  void *second = block_next(chain.head), *third = block_next(second), *tail = second;
  while (block_next(tail) != CHAIN_END) tail = block_next(tail);
  slab_push(slab, chain.head, tail, chain.count, &(struct slab_how){0});
  memset(second, 1, written);
  atomic_fetch_or(&slab->word, SLAB_PENDING);
  const struct slab_purge purge = slab_purge_holes(slab);
  CHECK(purge.damaged != NULL && purge.damaged != chain.head && purge.damaged != third);
  if (TSLAB_HARDENED || written > sizeof(void *)) CHECK(purge.damaged == second);
  CHECK_COUNT(purge.kept, <=, 2); /* up to the bad link */
  pages_free(slab, slab_retire(slab));
}

static void count_one(void *block, size_t bytes, void *arg) {
  (void)block, (void)bytes;
  ++*(unsigned *)arg;
}

/* A program freed the second block twice, so the list leads back to it. No walk goes round for ever, and the purge says
 * what it met. */
static void walks_end_in_a_ring(unsigned class) {
  slab = slab_new(class, 0, NULL);
  struct chain chain = slab_link(slab, 1000000);
  void *second = block_next(chain.head), *third = second == CHAIN_END ? CHAIN_END : block_next(second);
  if (third == CHAIN_END) return pages_free(slab, slab_retire(slab));
  void *tail = third;
  while (block_next(tail) != CHAIN_END) tail = block_next(tail);
  slab_push(slab, chain.head, tail, chain.count, &(struct slab_how){0});
  block_link(third, second);
  unsigned used = 0;
  slab_each_used(slab, count_one, &used);
  CHECK_COUNT(used, ==, slab->capacity - 3);
  atomic_fetch_or(&slab->word, SLAB_PENDING);
  const struct slab_purge purge = slab_purge_holes(slab);
  CHECK(purge.damaged == second);
  CHECK_COUNT(purge.kept, <=, 3);
  pages_free(slab, slab_retire(slab));
}

int main(void) {
  start_floors();
  for (unsigned class = 0; class < CLASSES; class++) live_and_die(class);
  retired_pages_are_dirty_if_used();
  for (unsigned class = 0; class < CLASSES; class++) holes_are_absent(class);
  for (unsigned class = 0; class < CLASSES; class++) a_limit_takes_the_rest(class);
  for (unsigned class = 0; class < CLASSES; class++) {
    purge_stops_at_damage(class, sizeof(void *));
    purge_stops_at_damage(class, class_size(class));
    walks_end_in_a_ring(class);
  }
  pages_check();
  return 0;
}
