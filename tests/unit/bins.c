/* bins: a slab's life, new, listed, given out, listed again, retired, as its heap's counters and its word show it. */
#include "unit.h"

#include "heap/bins.h"
#include "heap/check.h"
#include "heap/flush.h"
#include "heap/registry.h"
#include "heap/totals.h"

enum { CLASS = 8, OF = 455 }; /* 144 bytes: a slab has at least 32 blocks */

static struct heap *heap;
static struct bin *bin;
static void *blocks[8][OF];
static unsigned count[8]; /* the index of the slab */
static struct run *slab[8];

/* Takes all blocks that the heap's next `slabs` slabs have, sorted by slab; `live` blocks of the first slab are out
   already. */
static void take_slabs(unsigned slabs, unsigned live) {
  memset(count, 0, sizeof count);
  memset(slab, 0, sizeof slab);
  for (unsigned made = 0; made < slabs || bin->listed > 0;) {
    lock_take(&heap->lock);
    const struct chain chain = bins_take(heap, CLASS, 1);
    lock_release(&heap->lock);
    CHECK(chain.count > 0);
    for (void *b = chain.head; b != CHAIN_END; b = block_next(b)) {
      unsigned i = 0;
      while (slab[i] && slab[i] != pages_run_of(b)) i++;
      if (!slab[i]) made++;
      slab[i] = pages_run_of(b);
      blocks[i][count[i]++] = b;
    }
  }
  for (unsigned i = 0; i < slabs; i++) CHECK_COUNT(count[i] + (i == 0 ? live : 0), ==, slab[i]->capacity);
}

static void give_back(unsigned i, unsigned blocks_of_it) {
  struct chain chain = EMPTY_CHAIN;
  for (; chain.count < blocks_of_it; chain.count++) {
    void *const block = blocks[i][--count[i]];
    block_mark_free(block);
    block_link(block, chain.head);
    chain.head = block;
  }
  bins_return(&heap->lock, chain);
}

static bool is_listed(unsigned i) { return (atomic_load(&slab[i]->word) & SLAB_LISTED) != 0; }

static void check_bin(uint32_t slabs, uint32_t listed, uint32_t born, uint32_t retired) {
  heap_check(heap);
  CHECK_COUNT(bin->slabs, ==, slabs);
  CHECK_COUNT(bin->listed, ==, listed);
  CHECK_COUNT(bin->born, ==, born);
  CHECK_COUNT(bin->retired, ==, retired);
}

static void life_of_one(void) {
  lock_take(&heap->lock);
  struct chain first = bins_take(heap, CLASS, 1);
  lock_release(&heap->lock);
  slab[0] = pages_run_of(first.head);
  check_bin(1, run_bytes(slab[0]) > os_page_size, 1, 0); /* new: with units to link if a page is a part of it */
  CHECK(heap_class_of(heap, pages_pagemap()[run_index(slab[0])]) == CLASS);
  bins_return(&heap->lock, first);

  take_slabs(1, 0);
  check_bin(1, 0, 1, 0); /* all given out */
  give_back(0, slab[0]->threshold - 1u);
  check_bin(1, 0, 1, 0); /* the folded count is too small yet */
  give_back(0, 1);
  check_bin(1, 1, 1, 0);
  CHECK(is_listed(0) && !(atomic_load(&slab[0]->word) & SLAB_PENDING));
  give_back(0, count[0]);
  check_bin(1, 1, 1, 0); /* one cached epoch stays */
  CHECK_COUNT(heap_trim(heap, false), ==, 0); /* the slab changed since the last look, which never happened */
  CHECK_COUNT(heap_trim(heap, false), ==, GRANULE);
  check_bin(0, 0, 1, 1);
  CHECK(slab[0]->kind == RUN_FREE);
}

/* Blocks of several slabs return in one chain, and each reaches its own slab; of the empty slabs one stays. */
static void several(void) {
  take_slabs(3, 0);
  check_bin(3, 0, 4, 1);
  struct chain mixed = EMPTY_CHAIN;
  for (unsigned i = 0; i < 300; i++, mixed.count++) {
    void *const block = blocks[i % 3][--count[i % 3]];
    block_mark_free(block);
    block_link(block, mixed.head);
    mixed.head = block;
  }
  bins_return(&heap->lock, mixed);
  for (unsigned i = 0; i < 3; i++) CHECK_COUNT(slab_count(atomic_load(&slab[i]->word)), ==, 100);
  check_bin(3, 3, 4, 1);
  for (unsigned i = 0; i < 3; i++) give_back(i, count[i]);
  check_bin(1, 1, 4, 3);
  CHECK_COUNT(heap_trim(heap, true), ==, GRANULE);
  check_bin(0, 0, 4, 4);
}

/* The free blocks beside the live block are used and come back, twice. The slab's word is then the same as before; its
   pages are not, if such a block reaches into a page that was purged. */
static void use_kept(void) {
  bool reaches = false;
  for (int turn = 0; turn < 2; turn++) {
    lock_take(&heap->lock);
    const struct chain kept = bins_take(heap, CLASS, 1);
    lock_release(&heap->lock);
    for (void *b = kept.head; b != CHAIN_END; b = block_next(b)) {
      memset((char *)b + 16, 0x33, class_size(CLASS) - 16);
      reaches |= ((uintptr_t)b + class_size(CLASS) - 1) / os_page_size != (uintptr_t)b / os_page_size;
    }
    bins_return(&heap->lock, kept);
  }
  CHECK_COUNT(heap_trim(heap, false), ==, 0);
  if (reaches) CHECK_COUNT(heap_trim(heap, false), >, 0);
}

/* A slab with a live block keeps that block's page; the rest goes, once, and can be used again. */
static void holes(void) {
  take_slabs(1, 0);
  void *const live = blocks[0][--count[0] / 2];
  blocks[0][count[0] / 2] = blocks[0][count[0]];
  memset(live, 0x77, class_size(CLASS));
  give_back(0, count[0]);
  check_bin(1, 1, 5, 4);
  const uintptr_t from = (uintptr_t)live, to = from + class_size(CLASS);
  const size_t kept = round_up(to, os_page_size) - round_down(from, os_page_size);
  CHECK_COUNT(heap_trim(heap, true), ==, GRANULE - kept);
  CHECK_COUNT(heap_trim(heap, true), ==, 0);
  check_bin(1, 1, 5, 4);
  use_kept();
  take_slabs(1, 1);
  check_bin(1, 0, 5, 4);
  CHECK_COUNT(*(unsigned char *)live, ==, 0x77);

  /* Half of the slab is purged, and the other half when its blocks are free too. */
  const unsigned half = count[0] / 2;
  give_back(0, half);
  CHECK_COUNT(heap_trim(heap, false), ==, 0);
  const size_t first = heap_trim(heap, false);
  CHECK(first > 0 || kept == GRANULE); /* a page may be all of it */
  CHECK_COUNT(heap_trim(heap, false), ==, 0);
  give_back(0, count[0]);
  CHECK_COUNT(heap_trim(heap, false), ==, 0);
  CHECK_COUNT(heap_trim(heap, false), >=, GRANULE - kept - first);
  CHECK_COUNT(heap_trim(heap, false), ==, 0);
  take_slabs(1, 1);
  check_bin(1, 0, 5, 4);
  CHECK_COUNT(*(unsigned char *)live, ==, 0x77);
}

/* A free block of a large class is whole pages. So these go back although more blocks come back between two looks, but
 * not while the thread takes from the slab. */
static void large_blocks(void) {
  enum { SIZE = 16 * KiB, ALL = 12 };
  const unsigned class = class_of(SIZE);
  void *large[ALL];
  struct run *of[ALL];
  struct heap *const own = heap_acquire();
  struct chain chain = EMPTY_CHAIN;
  unsigned taken = 0, first = 0;
  while (taken < ALL) {
    lock_take(&own->lock);
    chain = bins_take(own, class, 1);
    lock_release(&own->lock);
    for (void *b = chain.head, *next; b != CHAIN_END && taken < ALL; b = next) {
      next = block_next(b);
      memset(b, 1, SIZE);
      of[taken] = pages_run_of(b);
      large[taken++] = b;
    }
  }
  for (unsigned i = 0; i < ALL; i++) first += of[i] == of[0];
  CHECK_COUNT(first, >=, 3);
  const size_t least = os_page_size > SIZE ? 0 : SIZE - os_page_size;
  size_t before = 0, after = 0;
  for (unsigned i = 0, freed = 0; freed < 2; i++) {
    if (of[i] != of[0]) continue;
    block_mark_free(large[i]);
    block_link(large[i], CHAIN_END);
    bins_return(&own->lock, (struct chain){large[i], 1});
    size_t bytes = heap_trim(own, false);
    if (freed++ == 0) before = bytes;
    else after = bytes;
  }
  CHECK_COUNT(before, ==, 0);
  CHECK_COUNT(after, >=, least);
  heap_release(own);
}

/* Slabs that a dead thread left listed serve the next thread before a new slab does. */
static void inheritance(void) {
  struct heap *const heir = heap_acquire();
  CHECK(heir != heap);
  give_back(0, slab[0]->threshold);
  check_bin(1, 1, 5, 4);
  heap_release(heap);
  lock_take(&heir->lock);
  const struct chain chain = bins_take(heir, CLASS, 1);
  lock_release(&heir->lock);
  CHECK(pages_run_of(chain.head) == slab[0]);
  CHECK(heap_class_of(heir, pages_pagemap()[run_index(slab[0])]) == CLASS && atomic_load(&slab[0]->heap) == heir);
  check_bin(0, 0, 5, 4);
  CHECK_COUNT(heir->bins[CLASS].slabs, ==, 1);
  CHECK_COUNT(heir->bins[CLASS].born, ==, 0);
}

static unsigned count_active(void) {
  unsigned active = 0;
  for (const struct heap *p = atomic_load(&active_heaps); p; p = p->next_active) active++;
  return active;
}

static struct class_totals totals_of_all(void) {
  struct class_totals totals = {0};
  for (struct heap *p = atomic_load(&active_heaps); p; p = p->next_active) heap_totals(p, CLASS, &totals);
  return totals;
}

enum { DEAD = 1000 };

/* All blocks of a new slab, as one chain. */
static struct chain take_whole(struct heap *from) {
  struct chain all = EMPTY_CHAIN;
  do {
    lock_take(&from->lock);
    const struct chain more = bins_take(from, CLASS, 1);
    lock_release(&from->lock);
    CHECK(more.count > 0);
    void *last = more.head;
    while (block_next(last) != CHAIN_END) last = block_next(last);
    block_link(last, all.head);
    all.head = more.head;
    all.count += more.count;
  } while (all.count < pages_run_of(all.head)->capacity);
  return all;
}

/* Takes the first blocks off the chain. */
static struct chain split(struct chain *from, unsigned blocks_of_it) {
  struct chain first = {from->head, blocks_of_it};
  void *last = first.head;
  for (unsigned i = 1; i < blocks_of_it; i++) last = block_next(last);
  from->head = block_next(last);
  from->count -= blocks_of_it;
  block_link(last, CHAIN_END);
  return first;
}

static struct heap *dead[DEAD];
static struct chain some[DEAD], all[DEAD]; /* of a slab with free blocks, and of a full one */

/* With any number of dead threads, each heap is folded once, and then no walk visits it. */
static void the_dead_are_folded(void) {
  const unsigned before = count_active();
  for (unsigned i = 0; i < DEAD; i++) dead[i] = heap_acquire();
  for (unsigned i = 0; i < DEAD; i++) some[i] = take_whole(dead[i]), all[i] = take_whole(dead[i]);
  for (unsigned i = 0; i < DEAD; i++) {
    bins_return(&dead[i]->lock, split(&some[i], pages_run_of(some[i].head)->threshold));
    heap_release(dead[i]);
  }
  const struct class_totals unfolded = totals_of_all();
  CHECK_COUNT(unfolded_heaps, >=, DEAD);
  for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap)
    if (!p->live) heaps_fold_dead(p);
  const struct class_totals folded = totals_of_all();
  for (unsigned i = 0; i < DEAD; i++) {
    CHECK(dead[i]->folded && dead[i]->bins[CLASS].listed == 0);
    CHECK_COUNT(dead[i]->bins[CLASS].slabs, ==, 1); /* the full one */
  }
  CHECK_COUNT(unfolded_heaps, ==, 0);
  CHECK_COUNT(count_active(), <=, before);
  CHECK_COUNT(common_heap.bins[CLASS].listed, >=, DEAD);
  CHECK_COUNT(folded.born, ==, unfolded.born);
  CHECK_COUNT(folded.slabs, ==, unfolded.slabs);
  heap_check(&common_heap);
}

/* Its full slab is common once blocks return to it, and no thread takes its heap's lock for that. */
static void a_full_slab_comes_back(void) {
  struct run *const full = pages_run_of(all[7].head);
  const uint64_t taken = dead[7]->lock.taken, slabs = totals_of_all().slabs;
  CHECK(atomic_load(&full->heap) == dead[7]);
  bins_return(&heap->lock, split(&all[7], full->threshold));
  CHECK(atomic_load(&full->heap) == &common_heap && (atomic_load(&full->word) & SLAB_LISTED));
  CHECK_COUNT(totals_of_all().slabs, ==, slabs);
  CHECK_COUNT(dead[7]->bins[CLASS].slabs, ==, 0);
  CHECK_COUNT(dead[7]->lock.taken, ==, taken);
}

static void one_look_finds_one(void) {
  const struct class_counters *const counters = &heap->counters->classes[CLASS];
  const uint64_t attempts = counters->adopt_attempts, failures = counters->adopt_failures;
  do { /* the thread's own slabs come first */
    lock_take(&heap->lock);
    CHECK(bins_take(heap, CLASS, 1).count > 0);
    lock_release(&heap->lock);
  } while (counters->adopt_attempts == attempts);
  CHECK_COUNT(counters->adopt_attempts, ==, attempts + 1);
  CHECK_COUNT(counters->adopt_failures, ==, failures);
}

static void the_next_begins_anew(void) {
  const unsigned before = count_active();
  const uint64_t slabs = totals_of_all().slabs;
  struct heap *const next = heap_acquire();
  CHECK(next->live && !next->folded);
  CHECK_COUNT(totals_of_all().slabs, ==, slabs);
  CHECK_COUNT(count_active(), ==, before + 1);
  CHECK_COUNT(next->bins[CLASS].born, ==, 0);
  heap_check(next);
}

int main(void) {
  start_floors();
  heap = heap_acquire();
  bin = &heap->bins[CLASS];
  life_of_one();
  several();
  holes();
  large_blocks();
  inheritance();
  the_dead_are_folded();
  heap = heap_acquire();
  a_full_slab_comes_back();
  one_look_finds_one();
  the_next_begins_anew();
  pages_check();
  return 0;
}
