/* refill: two heaps, used in turn by this one thread as two threads would: every block belongs to one holder, totals
 * are exact after every call, a thread that goes on freeing empties its magazines, and in the end nothing is left. */
#include "two_heaps.h"

#include "base/options.h"
#include "heap/borrow.h"
#include "heap/check.h"
#include "heap/flush.h"
#include "heap/quarantine.h"
#include "heap/tcache.h"

enum { SLOTS = 6000, KINDS = 5 };

static const unsigned class_of_kind[KINDS] = {0, 1, 6, 31, CLASSES - 1};
static struct slot {
  unsigned char *block;
  unsigned class;
  unsigned char fill;
} slots[SLOTS];
static unsigned found_anywhere;

static void check_both(void) {
  for (int i = 0; i < 2; i++) {
    heap_check(heaps[i]);
    CHECK_COUNT(heaps[i]->store->remote.count, <, REMOTE_MOST);
    CHECK_COUNT(heaps[i]->store->remote.room, >, 0);
    CHECK_COUNT(heaps[i]->granted_bytes, <=, options.list_bytes);
  }
}

/* Returns a block that is free between those of either heap, as if there were no other memory, or NULL. */
static void *allocate_anywhere(struct slot *s, bool has_heap) {
  void *const block = borrow_anywhere(has_heap ? current_heap : &empty_heap, s->class);
  if (!block) return NULL;
  CHECK_COUNT(class_size(pages_run_of(block)->class) % class_size(s->class), ==, 0);
  s->class = pages_run_of(block)->class;
  allocations[s->class]++;
  return block;
}

/* Waves, so that lists fill, overflow to the magazines and run empty. The other heap makes a quarter of the frees. */
static void against_a_shadow(void) {
  uint64_t random = 1;
  for (int i = 0; i < 1000000 / TEST_SCALE; i++) {
    const uint64_t r = check_random(&random);
    struct slot *const s = &slots[r % SLOTS];
    const bool wants_block = (i / 20000 % 2 == 0) == ((r >> 20) % 8 > 0);
    if (wants_block == (s->block != NULL)) continue;
    be((r >> 30) % 4 == 0);
    if (wants_block) {
      const unsigned kind = (r >> 40) % 16 ? (r >> 44) % (KINDS - 1) : KINDS - 1;
      *s = (struct slot){.class = class_of_kind[kind], .fill = (unsigned char)r};
      if ((r >> 50) % 16 == 0) s->block = allocate_anywhere(s, r >> 54 & 1), found_anywhere += s->block != NULL;
      if (!s->block) s->block = allocate(s->class);
      CHECK(s->block != NULL && pages_run_of(s->block)->class == s->class);
      memset(s->block, s->fill, class_size(s->class));
    } else {
      for (size_t at = 0; at < class_size(s->class); at += 7) CHECK_COUNT(s->block[at], ==, s->fill);
      release(s->block, s->class);
      s->block = NULL;
    }
    check_totals(s->class);
    if (i % 10000 == 0) check_both();
    if (i % 50000 == 0) heap_flush_magazines(current_heap, SIZE_MAX), heap_trim(current_heap, true);
  }
}

static void nothing_is_left(void) {
  CHECK_COUNT(found_anywhere, >, 0);
  be(0);
  for (int i = 0; i < SLOTS; i++)
    if (slots[i].block) release(slots[i].block, slots[i].class);
  for (unsigned i = 0; i < 2; i++) {
    be(i);
    heap_flush_lists(heaps[i]);
  }
  heap_flush_dead(&common_heap);
  heap_trim(&common_heap, true);
  for (unsigned class = 0; class < CLASSES; class++) {
    for (int i = 0; i < 2; i++) heap_trim(heaps[i], true);
    struct class_totals totals = totals_of(class);
    CHECK_COUNT(totals.allocations, ==, totals.frees);
    CHECK_COUNT(totals.cached, ==, 0);
    CHECK_COUNT(totals.slabs, ==, 0);
  }
}

/* Blocks are freed at random, and each block of the magazines would keep a slab: in the end only the list may keep
   some, and a cached epoch. */
static void long_drains_empty_the_magazines(void) {
  enum { CLASS = 6, BLOCKS = 60000, FEW = 1000 };
  static void *blocks[BLOCKS];
  const size_t cache_bytes = options.cache_bytes;
  const struct bin *const bin = &heaps[0]->bins[CLASS];
  uint64_t random = 1;
  be(0);
  options.cache_bytes = 2 * FEW * class_size(CLASS);
  for (int i = 0; i < BLOCKS; i++) blocks[i] = allocate(CLASS);
  CHECK_COUNT(bin->slabs, >, 2 * LIST_DRAIN_MOST);
  for (unsigned left = BLOCKS; left > FEW; left--) {
    if (!TSLAB_HARDENED && left == BLOCKS - 4 * FEW) CHECK_COUNT(bin->magazine_blocks, >, FEW); /* the heap is new */
    const unsigned which = (unsigned)(check_random(&random) % left), before = bin->magazine_blocks;
    release(blocks[which], CLASS);
    CHECK_COUNT(bin->magazine_blocks + 8, >=, before); /* no free pays for a whole batch */
    blocks[which] = blocks[left - 1];
  }
  if (TSLAB_HARDENED) quarantine_empty(heaps[0]);
  CHECK_COUNT(bin->magazine_blocks, ==, 0);
  for (int i = 0; i < FEW; i++) release(blocks[i], CLASS);
  if (TSLAB_HARDENED) quarantine_empty(heaps[0]);
  CHECK_COUNT(bin->magazine_blocks, ==, 0);
  options.cache_bytes = cache_bytes;
  heap_check(heaps[0]);
  if (TSLAB_HARDENED) return; /* blocks that left quarantine are still on the list, and later ones would wait there */
  CHECK_COUNT(bin->slabs, <=, LIST_DRAIN_MOST + 1);

  for (int i = 0; i < FEW; i++) blocks[i] = allocate(CLASS);
  for (int i = 0; i < FEW; i++) release(blocks[i], CLASS);
  /* For the next malloc: the library expects a thread that allocates to go on. */
  CHECK_COUNT(bin->magazine_blocks + tcache_length(heaps[0], CLASS), >=, FEW);
  heap_flush_lists(heaps[0]);
}

/* A thread that takes some blocks and frees them all, again and again, as for each request, soon has a list that is
   long enough for them. */
static void bursts_become_lists(void) {
  static void *blocks[LIST_MOST];
  const struct { size_t size; unsigned count; } bursts[] = {
      {64, 1000}, {64, 100}, {512, 300}, {4 * KiB, 40}, {12 * KiB, 15}, {SMALL_MAX, 4}, {SMALL_MAX, 15}};
  if (TSLAB_HARDENED) return; /* there a block rests before it is on the list again */
  const size_t sample = options.sample;
  options.sample = 0; /* allocate() does not see a detached list */
  be(0);
  for (size_t i = 0; i < sizeof bursts / sizeof *bursts; i++) {
    const unsigned class = class_of(bursts[i].size), count = bursts[i].count;
    const struct bin *const bin = &heaps[0]->bins[class];
    uint64_t refills = 0;
    for (int round = 0; round < 100; round++) {
      if (round == 50) refills = bin->refills;
      for (unsigned j = 0; j < count; j++) blocks[j] = allocate(class);
      for (unsigned j = 0; j < count; j++) release(blocks[j], class);
    }
    CHECK_COUNT(bin->refills - refills, <, 10);
    heap_flush_lists(heaps[0]);
  }
  options.sample = sample;
  heap_check(heaps[0]);
}

/* Returns how many of the blocks lie right behind the one that was handed out before. */
static unsigned neighbours(unsigned char *const *blocks, unsigned count, unsigned class) {
  unsigned found = 0;
  for (unsigned i = 1; i < count; i++) found += blocks[i] == blocks[i - 1] + class_size(class);
  return found;
}

/* A tree is freed leaf by leaf, and in the end all of it. The next tree gets blocks that follow each other. */
static void drains_restore_the_order(void) {
  enum { CLASS = 6, BLOCKS = 14000, LEAVES = 7 };
  static const unsigned places[LEAVES] = {3, 1, 6, 0, 5, 2, 4};
  static unsigned char *blocks[BLOCKS];
  if (TSLAB_HARDENED) return; /* the order is random there on purpose */
  be(0);
  for (int turn = 0; turn < 4; turn++) {
    for (unsigned i = 0; i < BLOCKS; i++) CHECK((blocks[i] = allocate(CLASS)) != NULL);
    if (turn > 0) CHECK_COUNT(neighbours(blocks, BLOCKS, CLASS), >, BLOCKS * 3 / 4);
    for (unsigned i = 0; i < BLOCKS; i++) release(blocks[i / LEAVES * LEAVES + places[i % LEAVES]], CLASS);
  }
  heap_flush_lists(heaps[0]);
  heap_check(heaps[0]);
}

/* Of many threads, each takes its first blocks of a class from slabs that all share, and gives them back there; then it
 * gets slabs of its own. */
static void many_share_what_they_use_little(void) {
  enum { CLASS = 17, MANY = 40, EACH = 20, TURNS = 3, MUCH = 200 };
  static struct heap *many[MANY];
  static void *blocks[MANY][EACH], *much[MUCH];
  for (int i = 0; i < MANY; i++) many[i] = heap_acquire();
  for (int turn = 0; turn < TURNS; turn++) {
    for (int i = 0; i < MANY; i++) {
      current_heap = many[i];
      for (int k = 0; k < EACH; k++) CHECK((blocks[i][k] = allocate(CLASS)) != NULL);
      CHECK_COUNT(many[i]->bins[CLASS].slabs, ==, 0);
    }
    for (int i = 0; i < MANY; i++) {
      current_heap = many[i];
      for (int k = 0; k < EACH; k++) release(blocks[i][k], CLASS);
      heap_flush_remote(many[i]);
      heap_check(many[i]);
    }
    heap_check(&common_heap);
  }
  struct class_totals totals = {0};
  for (struct heap *p = atomic_load(&active_heaps); p; p = p->next_active) heap_totals(p, CLASS, &totals);
  CHECK_COUNT(totals.allocations, ==, allocations[CLASS]);
  CHECK_COUNT(totals.frees, ==, frees[CLASS]);
  if (!TSLAB_HARDENED) CHECK_COUNT(totals.slabs, <=, MANY * EACH * class_size(CLASS) / GRANULE + 2); /* no quarantine */

  current_heap = many[0];
  for (int k = 0; k < MUCH; k++) CHECK((much[k] = allocate(CLASS)) != NULL);
  CHECK_COUNT(many[0]->bins[CLASS].slabs, >, 0);
  for (int k = 0; k < MUCH; k++) release(much[k], CLASS);

  for (int i = 0; i < MANY; i++) {
    current_heap = many[i];
    heap_flush_lists(many[i]);
    heap_release(many[i]);
    heaps_fold_dead(many[i]);
    CHECK(many[i]->folded);
  }
  heap_flush_dead(&common_heap);
  heap_trim(&common_heap, true);
  CHECK_COUNT(common_heap.bins[CLASS].slabs, ==, 0);
  be(0);
}

/* A thread that frees all its blocks of a class finds less and less room on the list, so that it hides hardly any when
   it rests. */
static void last_frees_leave_few(void) {
  enum { CLASS = 6, BLOCKS = 3000 };
  static void *blocks[BLOCKS];
  const size_t cache_bytes = options.cache_bytes;
  if (TSLAB_HARDENED) return; /* blocks wait in quarantine */
  be(0);
  options.cache_bytes = 0;
  for (unsigned count = BLOCKS - 50; count <= BLOCKS; count++) {
    for (unsigned i = 0; i < count; i++) blocks[i] = allocate(CLASS);
    for (unsigned i = 0; i < count; i++) release(blocks[i], CLASS);
    CHECK_COUNT(tcache_length(heaps[0], CLASS), <=, 2);
  }
  options.cache_bytes = cache_bytes;
  heap_flush_lists(heaps[0]);
}

int main(void) {
  start_two_heaps();
  bursts_become_lists();
  last_frees_leave_few();
  drains_restore_the_order();
  against_a_shadow();
  nothing_is_left();
  long_drains_empty_the_magazines();
  many_share_what_they_use_little();
  pages_check();
  return 0;
}
