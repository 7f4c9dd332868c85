/* large_cache: the newest freed run of exactly the right size comes out; bytes are limited; unused runs go back; no
   neighbour joins a cached run; all heaps together have a limit, and keep nothing for a while after a failure. */
#include "unit.h"

#include "base/options.h"
#include "heap/large_cache.h"
#include "slab/large.h"

enum { MOST = LARGE_CACHE_BYTES / GRANULE };

static struct notice notice;
static struct heap_store store = {.notice = &notice};
static struct heap heap = {.store = &store};
static struct large_counts counts = {.is_own = true};

static struct run *retire_new(size_t granules) {
  char *block = large_alloc(granules << GRANULE_SHIFT, GRANULE, NULL, &counts);
  CHECK(block != NULL);
  large_retire(pages_run_of(block), &counts);
  return pages_run_of(block);
}

static struct run *put_new(size_t granules) {
  struct run *run = retire_new(granules);
  CHECK(large_cache_has_room(&heap, run) || large_cache_make_room(&heap, run));
  large_cache_put(&heap, run);
  CHECK_COUNT(run->kind, ==, RUN_RESERVED);
  return run;
}

static void check_holds(size_t granules) {
  CHECK_COUNT(large_cache_bytes(&heap), ==, granules << GRANULE_SHIFT);
  pages_check();
}

static void order(void) {
  struct run *one = put_new(1), *three = put_new(3), *another = put_new(1), *two = put_new(2);
  check_holds(7);
  CHECK(large_cache_take(&heap, 4) == NULL);
  CHECK(large_cache_take(&heap, 1) == another);
  CHECK(large_cache_take(&heap, 3) == three);
  CHECK(large_cache_take(&heap, 3) == NULL);
  CHECK(large_cache_take(&heap, 1) == one);
  CHECK(large_cache_take(&heap, 2) == two);
  check_holds(0);
  CHECK(large_cache_take(&heap, 1) == NULL);
  CHECK(large_again(two, 100 * KiB, &counts) == run_start(two) && two->kind == RUN_LARGE);
  CHECK_COUNT(two->size, ==, round_up(100 * KiB, os_page_size));
  large_retire(two, &counts);
  struct run *all[] = {one, two, three, another};
  for (size_t i = 0; i < 4; i++) pages_free(all[i], false);
}

static void limits(void) {
  struct run *oldest = put_new(3), *old = put_new(1);
  for (size_t i = 4; i < MOST; i++) put_new(1);
  check_holds(MOST);
  struct run *more = put_new(2); /* the oldest makes room for it */
  check_holds(MOST - 1);
  CHECK(oldest->kind == RUN_FREE && old->kind == RUN_RESERVED && large_cache_take(&heap, 2) == more);
  large_cache_put(&heap, more);
  CHECK(!large_cache_has_room(&heap, retire_new(2)));
  struct run *too_large = retire_new(MOST + 1);
  CHECK(!large_cache_has_room(&heap, too_large) && !large_cache_make_room(&heap, too_large));
  check_holds(MOST - 1);
  pages_free(too_large, false);
  put_new(MOST);
  check_holds(MOST);
  CHECK_COUNT(large_cache_flush(&heap, true), ==, LARGE_CACHE_BYTES);
  check_holds(0);

  const size_t before = options.cache_bytes; /* TSLAB_CACHE limits it, too */
  options.cache_bytes = 2 * GRANULE - 1;
  put_new(1);
  put_new(1);
  check_holds(1);
  options.cache_bytes = GRANULE - 1;
  more = retire_new(1);
  CHECK(!large_cache_make_room(&heap, more));
  options.cache_bytes = before;
  CHECK_COUNT(large_cache_flush(&heap, true), ==, GRANULE);
  more->moved = true; /* the run has a mapping of its own, which must end first */
  CHECK(!large_cache_has_room(&heap, more) && !large_cache_make_room(&heap, more));
  more->moved = false;
  pages_free(more, false);
}

/* Memory that the thread did not need between two looks. */
static void staleness(void) {
  struct run *oldest = put_new(2);
  put_new(1);
  CHECK_COUNT(large_cache_flush(&heap, false), ==, 0);
  struct run *taken = large_cache_take(&heap, 1);
  large_cache_put(&heap, taken);
  CHECK_COUNT(large_cache_flush(&heap, false), ==, 2 * GRANULE); /* one of the two was in the cache at every moment */
  CHECK_COUNT(oldest->kind, !=, RUN_RESERVED);
  check_holds(1);
  CHECK_COUNT(large_cache_flush(&heap, false), ==, GRANULE);
  check_holds(0);
  CHECK_COUNT(large_cache_flush(&heap, false), ==, 0);
}

/* Free memory beside it stays apart, and joins it once it is given back. */
static void neighbours(void) {
  struct run *runs[3];
  bool zero;
  struct run *whole = pages_alloc(6, GRANULE, RUN_LARGE, &zero, NULL);
  pages_free(whole, true);
  for (size_t i = 0; i < 3; i++) runs[i] = retire_new(2);
  CHECK(runs[1] == runs[0] + 2 && runs[2] == runs[1] + 2);
  large_cache_put(&heap, runs[1]);
  pages_free(runs[0], false);
  pages_free(runs[2], false);
  pages_check();
  CHECK_COUNT(large_cache_flush(&heap, true), ==, 2 * GRANULE);
  pages_check();
  struct run *again = pages_alloc(6, GRANULE, RUN_LARGE, &zero, NULL);
  CHECK(again == whole);
  pages_free(again, false);
}

/* All heaps together keep up to a limit; another heap may use the share that a heap did not need since the last
   look. */
static void all(void) {
  enum { OTHERS = LARGE_CACHES_BYTES / LARGE_CACHE_BYTES };
  static struct heap others[OTHERS];
  static struct heap_store stores[OTHERS];
  for (size_t i = 0; i < OTHERS; i++) {
    stores[i].notice = &notice;
    others[i].store = &stores[i];
    struct run *whole = retire_new(MOST);
    CHECK(large_cache_has_room(&others[i], whole));
    large_cache_put(&others[i], whole);
  }
  CHECK_COUNT(large_cache_total(), ==, LARGE_CACHES_BYTES);
  struct run *more = retire_new(1);
  CHECK(!large_cache_has_room(&heap, more) && !large_cache_make_room(&heap, more));
  CHECK(!large_cache_has_room(&others[0], more) && large_cache_make_room(&others[0], more));
  large_cache_put(&others[0], more); /* resized in place */
  CHECK_COUNT(large_cache_bytes(&others[0]), ==, GRANULE);
  CHECK_COUNT(large_cache_total(), ==, LARGE_CACHES_BYTES);
  CHECK_COUNT(large_cache_flush(&others[0], true), ==, GRANULE);
  CHECK_COUNT(large_cache_total(), ==, LARGE_CACHES_BYTES - LARGE_CACHE_BYTES);
  put_new(MOST);
  large_cache_flush(&heap, true);

  stores[1].large.most++; /* a child whose fork came between the two places of that count */
  for (size_t i = 0; i < OTHERS; i++) {
    struct run *run = large_cache_take(&others[i], MOST);
    if (run) pages_free(run, false);
    large_cache_forget(&others[i]);
  }
  CHECK_COUNT(large_cache_total(), ==, 0);
}

/* After memory was refused. */
static void suspension(void) {
  struct run *run = retire_new(1);
  large_cache_suspend();
  for (int i = 0; i < LARGE_CACHE_SUSPENDED; i++)
    CHECK(!large_cache_has_room(&heap, run) && !large_cache_make_room(&heap, run));
  CHECK(large_cache_has_room(&heap, run));
  pages_free(run, false);
}

int main(void) {
  start_floors();
  if (TSLAB_HARDENED) { /* there a large block has a guard of its own */
    struct run *run = retire_new(1);
    CHECK(!large_cache_has_room(&heap, run));
    pages_free(run, false);
    return 0;
  }
  order();
  limits();
  staleness();
  neighbours();
  all();
  suspension();
  return 0;
}
