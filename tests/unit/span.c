/* span: memory of epochs' blank heaps goes back, granule by granule, and their counts stay. */
#include "unit.h"

#include "heap/bump.h"
#include "heap/fast.h"
#include "heap/registry.h"
#include "heap/span.h"

enum { CLASS = 4, BLANKS = 10 * HEAP_SPAN };
static struct heap *blanks[BLANKS];

static unsigned count_of_epochs(void) {
  unsigned count = 0;
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) count += p->of_epochs;
  return count;
}

static uint64_t sum_of_locks(void) {
  uint64_t sum = heaps_folded_locks.taken;
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) sum += p->lock.taken;
  return sum;
}

static void take_blanks(struct arena *arena) {
  for (unsigned i = 0; i < BLANKS; i++) {
    blanks[i] = heap_take_blank(arena);
    CHECK(blanks[i] != NULL && blanks[i]->live && blanks[i]->arena == arena);
    CHECK(blanks[i]->list[CLASS] == CHAIN_END);
    CHECK(!heap_has_store(blanks[i]) && (uintptr_t)blanks[i] % HEAP_ALIGNMENT == 0);
  }
}

/* Granules whose heaps are all blank go back, except those that stay until the next trim but one. The counts of their
   heaps still count. */
static void blank_heaps(void) {
  struct arena *const arena = arena_make();
  current_heap = heap_acquire();
  CHECK(current_heap != NULL);
  const unsigned here = heaps_here;
  take_blanks(arena);
  CHECK_COUNT(count_of_epochs(), ==, BLANKS);
  for (unsigned i = 0; i < BLANKS; i++) blanks[i]->bump.allocations = i;
  const uint64_t bumped = bump_allocations(), locks = sum_of_locks(), returned = pages_totals().returned;
  for (unsigned i = 0; i < BLANKS; i++) heap_give_back(blanks[i]);
  CHECK_COUNT(count_of_epochs(), ==, SPANS_KEPT * HEAP_SPAN);
  CHECK_COUNT(heaps_here, ==, here + SPANS_KEPT * HEAP_SPAN);
  CHECK_COUNT(pages_totals().returned - returned, ==, (10 - SPANS_KEPT) * GRANULE);
  CHECK_COUNT(bump_allocations(), ==, bumped);
  CHECK_COUNT(sum_of_locks(), ==, locks + BLANKS);
  const size_t committed = pages_totals().committed;
  for (int round = 0; round < 3; round++) {
    for (unsigned i = 0; i < BLANKS; i++) blanks[i] = heap_take_blank(arena);
    CHECK_COUNT(count_of_epochs(), ==, BLANKS);
    for (unsigned i = 0; i < BLANKS; i++) heap_give_back(blanks[i]);
  }
  CHECK_COUNT(heaps_trim(false), ==, 0); /* all were needed since the last time */
  blanks[0] = heap_take_blank(arena);
  heap_give_back(blanks[0]);
  CHECK_COUNT(heaps_trim(false), ==, (SPANS_KEPT - 1) * GRANULE);
  CHECK_COUNT(heaps_trim(true), ==, GRANULE);
  CHECK_COUNT(heaps_here, ==, here);
  CHECK_COUNT(pages_totals().committed, ==, committed);
  CHECK_COUNT(bump_allocations(), ==, bumped);
}

int main(void) {
  start_floors();
  blank_heaps();
  return 0;
}
