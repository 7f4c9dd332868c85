/* check: a whole list passes; the check finds a block that was written to, or is on the list twice. */
#include "two_heaps.h"

#include "heap/check.h"
#include "heap/quarantine.h"

/* Hardened, what a free block's words hold is looked at when it leaves quarantine, and here. */
static void release_to_list(void *block, unsigned class) {
  release(block, class);
  if (TSLAB_HARDENED) quarantine_empty(current_heap);
}

/* The fast path does not see these; the slow paths that do are told which block it is. */
static void spoilt_lists(void) {
  enum { CLASS = 9 };
  be(0);
  void **const block = allocate(CLASS);
  CHECK(heap_find_double(heaps[0]) == NULL);
  release_to_list(block, CLASS);
  block[1] = NULL; /* written to since */
  CHECK(heap_find_double(heaps[0]) == block);
  block[1] = NULL; /* marked free by the search */
  CHECK(fast_pop(heaps[0], CLASS, (uintptr_t)pages.base) == NULL);
  CHECK(heap_take_bad_list(heaps[0], CLASS) == block);
  CHECK(block[1] == NULL && heaps[0]->list[CLASS] == CHAIN_END);
  heap_check(heaps[0]);
  if (TSLAB_HARDENED) return; /* a second free is not taken */
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
