/* flush: a dead thread's lists reach their slabs, and its heap is folded; a live thread's own flush leaves nothing
 * behind. */
#include "two_heaps.h"

#include "heap/check.h"
#include "heap/flush.h"
#include "heap/tcache.h"

static void the_dead_give_their_lists(void) {
  enum { CLASS = 20 };
  be(1);
  void *const block = allocate(CLASS);
  release(block, CLASS);
  CHECK_COUNT(heap_flush_dead(heaps[1]), ==, 0);
  heap_release(heaps[1]);
  CHECK_COUNT(heap_flush_dead(heaps[1]), >, 0);
  CHECK(heaps[1]->list[CLASS] == CHAIN_END);
  heap_check(heaps[1]);
}

static void own_flush(void) {
  enum { CLASS = 11, BLOCKS = 3000 };
  static void *blocks[BLOCKS];
  be(0);
  for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = allocate(CLASS)) != NULL);
  for (int i = 0; i < BLOCKS; i++) release(blocks[i], CLASS);
  heap_flush_lists(heaps[0]);
  CHECK(tcache_is_folded(heaps[0], CLASS));
  CHECK_COUNT(totals_of(CLASS).cached, ==, 0);
  CHECK_COUNT(heap_trim(heaps[0], true), >, 0);
  CHECK_COUNT(totals_of(CLASS).slabs, ==, 0);
}

int main(void) {
  start_two_heaps();
  own_flush();
  the_dead_give_their_lists();
  CHECK_COUNT(heaps_fold_dead(heaps[1]), ==, 0);
  CHECK(heaps[1]->folded);
  return 0;
}
