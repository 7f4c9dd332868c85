/* store: heaps of epochs take stores and leave them with their counters; memory of unused stores goes back. */
#include "unit.h"

#include "heap/arena.h"
#include "heap/fast.h"
#include "heap/registry.h"
#include "heap/store.h"
#include "heap/tcache.h"
#include "heap/totals.h"

enum { CLASS = 5, HEAPS = 3 * STORES_KEPT };

static struct heap *heaps[HEAPS];
static struct arena *arena;

static unsigned count_stored(bool of_heaps) {
  unsigned count = 0;
  for (struct stored *s = stored_first(); s; s = s->next) count += (stored_heap(s) != NULL) == of_heaps;
  return count;
}

/* Does what heap_refill, the program and the end of an epoch do. */
static void use(struct heap *heap, unsigned class, unsigned blocks) {
  CHECK(heap_make_store(heap));
  counter_add_release(&heap->bins[class].refills, 1);
  counter_add_release(&heap->bins[class].allocations, blocks);
  counter_add_release(&heap->bins[class].frees, blocks);
  counter_add_release(&heap->bins[class].remote_frees, 1);
  heap->bins[class].born++;
  heap->bins[class].retired++;
}

static struct class_totals totals_of(unsigned class) {
  struct class_totals totals = {0};
  for (struct heap *p = atomic_load(&active_heaps); p; p = p->next_active) heap_totals(p, class, &totals);
  heap_epoch_totals(class, &totals);
  return totals;
}

static void check_totals(uint64_t blocks, uint64_t uses) {
  struct class_totals totals = totals_of(CLASS);
  CHECK_COUNT(totals.allocations, ==, blocks);
  CHECK_COUNT(totals.frees, ==, blocks + uses);
  CHECK_COUNT(totals.remote_frees, ==, uses);
  CHECK_COUNT(totals.refills, ==, uses);
  CHECK_COUNT(totals.born, ==, uses);
  CHECK_COUNT(totals.retired, ==, uses);
  CHECK_COUNT(totals.slabs, ==, 0);
}

static void one_after_the_other(void) {
  struct heap *const one = heap_take_blank(arena), *const other = heap_take_blank(arena);
  CHECK(!heap_has_store(one) && count_stored(true) == 0);
  use(one, CLASS, 10);
  struct heap_store *const store = one->store;
  CHECK(stored_heap(store->stored) == one && one->bins == store->bins && count_stored(true) == 1);
  check_totals(10, 1);
  heap_give_back(one);
  CHECK(!heap_has_store(one) && !stored_heap(store->stored) && count_stored(false) == 1);
  check_totals(10, 1);
  use(other, CLASS, 5);
  CHECK(other->store == store && count_stored(true) == 1);
  check_totals(15, 2);
  heap_give_back(other);
  struct heap *const of_thread = heap_acquire(); /* its row in the statistics has only its own calls */
  CHECK(of_thread->store != store && of_thread->bins[CLASS].allocations == 0);
}

/* Excess stores go back at once, the others when no heap needed them between two trims. */
static void many(void) {
  const uint64_t before = pages_totals().returned;
  for (unsigned i = 0; i < HEAPS; i++) {
    heaps[i] = heap_take_blank(arena);
    use(heaps[i], CLASS, 1);
  }
  check_totals(15 + HEAPS, 2 + HEAPS);
  for (unsigned i = 0; i < HEAPS; i++) heap_give_back(heaps[i]);
  check_totals(15 + HEAPS, 2 + HEAPS);
  CHECK_COUNT(count_stored(false), ==, HEAPS);
  const size_t size = (pages_totals().returned - before) / (HEAPS - STORES_KEPT);
  CHECK_COUNT(size, >=, sizeof(struct heap_store));
  CHECK_COUNT(stores_trim(false), ==, 0);
  struct heap *const again = heap_take_blank(arena);
  use(again, CLASS, 1);
  heap_give_back(again);
  CHECK_COUNT(stores_trim(false), ==, (STORES_KEPT - 1) * size);
  CHECK_COUNT(stores_trim(true), ==, size);
  CHECK_COUNT(stores_trim(true), ==, 0);
  check_totals(16 + HEAPS, 3 + HEAPS);
  const size_t committed = pages_totals().committed;
  for (unsigned i = 0; i < HEAPS; i++) {
    heaps[i] = heap_take_blank(arena);
    use(heaps[i], CLASS, 1);
    CHECK_COUNT(heaps[i]->bins[CLASS].allocations, ==, 1); /* the counts of memory that went back are in the others */
  }
  CHECK_COUNT(pages_totals().committed, ==, committed);
  check_totals(16 + 2 * HEAPS, 3 + 2 * HEAPS);
}

int main(void) {
  start_floors();
  current_heap = heap_acquire();
  arena = arena_make();
  one_after_the_other();
  many();
  pages_check();
  return 0;
}
