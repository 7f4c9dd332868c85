/* borrow: a thread with or without a heap gets blocks from the slabs of another live thread, of the class or of one
 * that serves as well; the slab becomes common, and all counts stay true. */
#include "two_heaps.h"

#include "heap/borrow.h"
#include "heap/check.h"
#include "heap/flush.h"

enum { CLASS = 5, SMALLER = 2, OTHER = 4, BLOCKS = 4000 }; /* 96, 48 and 80 bytes */

static void *blocks[BLOCKS], *borrowed[BLOCKS];

static void fill_and_thin_out(void) {
  be(0);
  for (int i = 0; i < BLOCKS; i++) blocks[i] = allocate(CLASS);
  for (int i = 0; i < BLOCKS; i += 2) release(blocks[i], CLASS);
  heap_flush_lists(heaps[0]);
  CHECK_COUNT(heaps[0]->bins[CLASS].listed, >, 1);
}

static void *borrow(struct heap *heap, unsigned class) {
  void *const block = borrow_anywhere(heap, class);
  if (block) allocations[CLASS]++;
  return block;
}

static void blocks_of_another(void) {
  CHECK_COUNT(class_size(CLASS), ==, 2 * class_size(SMALLER));
  CHECK(class_size(CLASS) % class_size(OTHER) != 0);
  current_heap = &empty_heap;
  CHECK(borrow(&empty_heap, OTHER) == NULL);
  for (int i = 0; i < BLOCKS / 4; i++) {
    current_heap = i % 2 ? heaps[1] : &empty_heap;
    borrowed[i] = borrow(current_heap, i % 3 ? CLASS : SMALLER);
    CHECK(borrowed[i] != NULL && pages_run_of(borrowed[i])->class == CLASS);
    CHECK(atomic_load(&pages_run_of(borrowed[i])->heap) == &common_heap);
    memset(borrowed[i], 0x44, class_size(CLASS));
  }
  check_totals(CLASS);
  heap_check(heaps[0]);
  heap_check(&common_heap);
}

/* Nobody holds a lock that the caller holds. */
static void not_under_a_lock(void) {
  lock_take(&heaps[1]->lock);
  CHECK(borrow(heaps[1], CLASS) == NULL);
  lock_release(&heaps[1]->lock);
  CHECK((borrowed[BLOCKS / 4] = borrow(heaps[1], CLASS)) != NULL);
}

static void all_come_back(void) {
  for (int i = 1; i < BLOCKS; i += 2) be(i / 2 % 2), release(blocks[i], CLASS);
  for (int i = 0; i <= BLOCKS / 4; i++) be(i % 2), release(borrowed[i], CLASS);
  check_totals(CLASS);
  for (int i = 0; i < 2; i++) be((unsigned)i), heap_flush_lists(heaps[i]);
  heap_flush_dead(&common_heap);
  for (int i = 0; i < 2; i++) heap_trim(heaps[i], true);
  heap_trim(&common_heap, true);
  check_totals(CLASS);
  CHECK_COUNT(totals_of(CLASS).slabs, ==, 0);
  CHECK_COUNT(totals_of(CLASS).cached, ==, 0);
}

int main(void) {
  start_two_heaps();
  fill_and_thin_out();
  blocks_of_another();
  not_under_a_lock();
  all_come_back();
  pages_check();
  return 0;
}
