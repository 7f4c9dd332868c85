/* magazine: a list takes the newest magazine, and slabs get the oldest; small ones join; bytes and magazines are
 * limited; every block counts; a magazine leaves in pieces, or as a whole if it is damaged. */
#include "unit.h"

#include "base/options.h"
#include "heap/magazine.h"

enum { CLASS = 3, OTHER = 7, BLOCKS = 4000, CAP = 100 };

static struct heap heap;
static struct notice notice;
static struct heap_store store;
static void *blocks[BLOCKS][2];
static unsigned next_block;

static void reset(void) {
  memset(&heap, 0, sizeof heap);
  memset(&store, 0, sizeof store);
  store.notice = &notice;
  heap.store = &store;
  heap.bins = store.bins;
  heap.magazines = store.magazines;
  heap.unused_magazine = 1;
  heap.bins[CLASS].cap = heap.bins[OTHER].cap = CAP;
  next_block = 0;
}

static struct chain make_chain(unsigned count) {
  struct chain chain = {CHAIN_END, count};
  CHECK_COUNT(next_block + count, <=, BLOCKS);
  for (unsigned i = 0; i < count; i++) {
    block_link(blocks[next_block], chain.head);
    block_mark_free(blocks[next_block]);
    chain.head = blocks[next_block++];
  }
  return chain;
}

static unsigned length(struct chain chain) {
  unsigned count = 0;
  for (void **b = chain.head; b != CHAIN_END; b = block_next(b)) count++;
  return count;
}

static void check_chain(struct chain chain, struct chain expected) {
  CHECK(chain.head == expected.head);
  CHECK_COUNT(chain.count, ==, expected.count);
  CHECK_COUNT(length(chain), ==, expected.count);
}

static void check_counts(unsigned of_class, unsigned of_other) {
  CHECK_COUNT(heap.bins[CLASS].magazine_blocks, ==, of_class);
  CHECK_COUNT(heap.bins[OTHER].magazine_blocks, ==, of_other);
  CHECK_COUNT(heap.magazine_bytes, ==, of_class * class_size(CLASS) + of_other * class_size(OTHER));
}

static void order(void) {
  reset();
  struct chain a = make_chain(50), b = make_chain(60), c = make_chain(70), other = make_chain(40);
  CHECK(magazine_put(&heap, CLASS, a) && magazine_put(&heap, CLASS, b) && magazine_put(&heap, CLASS, c));
  CHECK(magazine_put(&heap, OTHER, other));
  check_counts(180, 40);
  check_chain(magazine_take(&heap, CLASS), c);
  check_chain(magazine_take_oldest(&heap, CLASS), a);
  check_chain(magazine_take(&heap, CLASS), b);
  CHECK_COUNT(magazine_take(&heap, CLASS).count, ==, 0);
  CHECK_COUNT(magazine_take_oldest(&heap, CLASS).count, ==, 0);
  check_chain(magazine_take_oldest(&heap, OTHER), other);
  check_counts(0, 0);
}

/* Pieces of 32 join until a batch is a list's worth and a piece; a larger chain, or a chain of another class, stays
   separate. */
static void joining(void) {
  reset();
  for (int i = 0; i < 5; i++) CHECK(magazine_put(&heap, CLASS, make_chain(32)));
  CHECK(magazine_put(&heap, OTHER, make_chain(8)));
  check_counts(160, 8);
  struct chain newest = magazine_take(&heap, CLASS), oldest = magazine_take(&heap, CLASS);
  CHECK_COUNT(newest.count, ==, 32);
  CHECK_COUNT(oldest.count, ==, 128);
  CHECK_COUNT(length(oldest), ==, 128);
  CHECK(magazine_put(&heap, CLASS, make_chain(32)) && magazine_put(&heap, CLASS, make_chain(33)));
  CHECK_COUNT(magazine_take(&heap, CLASS).count, ==, 33);
  CHECK_COUNT(magazine_take(&heap, CLASS).count, ==, 32);
  check_counts(0, 8);
}

/* Of large blocks only 16 KiB join, so that a refill takes no more. */
static void large_blocks(void) {
  const unsigned cap = 4, piece = 4;
  unsigned large = 0;
  while (class_size(large) < 4 * KiB) large++;
  reset();
  heap.bins[large].cap = (uint16_t)cap;
  for (int i = 0; i < 10; i++) CHECK(magazine_put(&heap, large, make_chain(piece)));
  CHECK_COUNT(heap.bins[large].magazine_blocks, ==, 10 * piece);
  for (int i = 0; i < 5; i++) CHECK_COUNT(magazine_take(&heap, large).count, ==, cap + 16 * KiB / (4 * KiB));
  CHECK_COUNT(magazine_take(&heap, large).count, ==, 0);
}

static void limits(void) {
  reset();
  options.cache_bytes = 100 * class_size(CLASS);
  CHECK(magazine_put(&heap, CLASS, make_chain(60)) && !magazine_put(&heap, CLASS, make_chain(41)));
  check_counts(60, 0);
  CHECK(magazine_put(&heap, CLASS, make_chain(40)) && !magazine_put(&heap, CLASS, make_chain(1)));
  check_counts(100, 0);

  reset();
  options.cache_bytes = SIZE_MAX;
  heap.bins[CLASS].cap = 0; /* nothing joins: a batch for each */
  struct chain chain = make_chain(33);
  for (int i = 1; i < MAGAZINES; i++) CHECK(magazine_put(&heap, CLASS, chain)); /* no magazine reads the block */
  CHECK(!magazine_put(&heap, CLASS, chain));
  check_counts(33 * (MAGAZINES - 1), 0);
  magazine_take(&heap, CLASS);
  CHECK(magazine_put(&heap, OTHER, chain) && !magazine_put(&heap, CLASS, chain));
}

/* The oldest batch leaves a few blocks at a time, with others behind them, and every block leaves once. */
static void some_at_a_time(void) {
  struct chain astray = EMPTY_CHAIN;
  reset();
  struct chain a = make_chain(50), b = make_chain(40), behind = make_chain(3), got;
  CHECK(magazine_put(&heap, CLASS, a) && magazine_put(&heap, CLASS, b));
  got = magazine_take_some(&heap, CLASS, 8, behind, &astray);
  check_chain(got, (struct chain){a.head, 11});
  check_counts(82, 0);
  for (unsigned left = 82; left > 40; left -= length(got)) {
    got = magazine_take_some(&heap, CLASS, 40, EMPTY_CHAIN, &astray);
    CHECK_COUNT(got.count, ==, length(got));
  }
  check_counts(40, 0);
  check_chain(magazine_take_some(&heap, CLASS, 100, EMPTY_CHAIN, &astray), b);
  check_counts(0, 0);
  behind = make_chain(3);
  check_chain(magazine_take_some(&heap, CLASS, 8, behind, &astray), behind);
  CHECK_COUNT(astray.count, ==, 0);
}

/* A block of the batch was freed twice, or written to: the batch leaves as a whole, and its return reports the
   damage. */
static void some_of_a_spoilt_batch(void) {
  for (unsigned bad = 0; bad < 8; bad++) {
    struct chain astray = EMPTY_CHAIN;
    reset();
    struct chain spoilt = make_chain(50), behind = make_chain(3);
    void *block = spoilt.head;
    for (unsigned i = 0; i < bad; i++) block = block_next(block);
    block_mark(block, 0);
    CHECK(magazine_put(&heap, CLASS, spoilt));
    check_chain(magazine_take_some(&heap, CLASS, 8, behind, &astray), behind);
    CHECK(astray.head == spoilt.head);
    CHECK_COUNT(astray.count, ==, 50);
    check_counts(0, 0);
  }
}

/* A block of a small chain was freed twice, or written to: the chain stays separate, and leaves as it came. */
static void no_spoilt_chain_joins(void) {
  for (unsigned bad = 0; bad < 8; bad++) {
    reset();
    struct chain sound = make_chain(8), spoilt = make_chain(8);
    void *block = spoilt.head;
    for (unsigned i = 0; i < bad; i++) block = block_next(block);
    memset(block, 1, sizeof blocks[0]);
    CHECK(magazine_put(&heap, CLASS, sound) && magazine_put(&heap, CLASS, spoilt));
    const struct chain newest = magazine_take(&heap, CLASS);
    CHECK(newest.head == spoilt.head);
    CHECK_COUNT(newest.count, ==, 8);
    check_chain(magazine_take(&heap, CLASS), sound);
  }
}

int main(void) {
  order();
  some_at_a_time();
  some_of_a_spoilt_batch();
  joining();
  large_blocks();
  no_spoilt_chain_joins();
  limits();
  return 0;
}
