/* check: a whole list passes; the check finds a block that was written to, or is on the list twice. */
#include "two_heaps.h"

#include "heap/check.h"
#include "heap/quarantine.h"

/* The hardened library checks the words of a free block when it leaves quarantine, and here. */
static void release_to_list(void *block, unsigned class) {
  release(block, class);
  if (TSLAB_HARDENED) quarantine_empty(current_heap);
}

/* The fast path does not check these; the slow paths do, and learn which block it is. */
static void spoilt_lists(void) {
  enum { CLASS = 9 };
  be(0);
  void **const block = allocate(CLASS);
  CHECK(heap_find_double(heaps[0]) == NULL);
  release_to_list(block, CLASS);
  block[1] = NULL; /* the program wrote to it since its free */
  CHECK(heap_find_double(heaps[0]) == block);
  block[1] = NULL; /* the search marked it as free */
  CHECK(fast_pop(heaps[0], CLASS, pages.key) == NULL);
  CHECK(heap_take_bad_list(heaps[0], CLASS) == block);
  CHECK(block[1] == NULL && heaps[0]->list[CLASS] == CHAIN_END);
  heap_check(heaps[0]);
  if (TSLAB_HARDENED) return; /* the second free is not counted */
  void *const twice = allocate(CLASS);
  release(twice, CLASS);
  release(twice, CLASS);
  CHECK(heap_find_double(heaps[0]) == twice);
}

int main(void) {
  start_two_heaps();
  spoilt_lists();
  return 0;
}
