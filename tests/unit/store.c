/* store: parts of epochs take stores and leave them, counters and all; memory of unused ones goes back. */
#include "unit.h"

#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/store.h"

enum { CLASS = 5, PARTS = 3 * STORES_KEPT };

static struct part *parts[PARTS];
static struct lifetime *lifetime;

static unsigned count_stored(bool of_parts) {
  unsigned count = 0;
  for (struct stored *s = stored_first(); s; s = s->next) count += (stored_part(s) != NULL) == of_parts;
  return count;
}

/* As heap_refill, the program and an epoch's end do. */
static void use(struct part *part, unsigned class, unsigned blocks) {
  CHECK(part_make_store(part));
  bump(&part->bins[class].refills, 1);
  bump(&part->bins[class].allocations, blocks);
  bump(&part->bins[class].frees, blocks);
  bump(&part->bins[class].remote_frees, 1);
  part->bins[class].born++;
  part->bins[class].retired++;
}

static struct class_totals totals_of(unsigned class) {
  struct class_totals totals = {0};
  for (struct part *p = atomic_load(&active_parts); p; p = p->next_active) heap_totals(p, class, &totals);
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
  struct part *const one = part_take_blank(lifetime), *const other = part_take_blank(lifetime);
  CHECK(!part_has_store(one) && count_stored(true) == 0);
  use(one, CLASS, 10);
  struct part_store *const store = one->store;
  CHECK(stored_part(store->stored) == one && one->bins == store->bins && count_stored(true) == 1);
  check_totals(10, 1);
  part_give_back(one);
  CHECK(!part_has_store(one) && !stored_part(store->stored) && count_stored(false) == 1);
  check_totals(10, 1);
  use(other, CLASS, 5);
  CHECK(other->store == store && count_stored(true) == 1);
  check_totals(15, 2);
  part_give_back(other);
  struct part *const of_thread = part_acquire(); /* its row in the figures is of its own calls alone */
  CHECK(of_thread->store != store && of_thread->bins[CLASS].allocations == 0);
}

/* Those that are one too many go back at once, the others when no part needed them between two trims. */
static void many(void) {
  const uint64_t before = pages_totals().returned;
  for (unsigned i = 0; i < PARTS; i++) {
    parts[i] = part_take_blank(lifetime);
    use(parts[i], CLASS, 1);
  }
  check_totals(15 + PARTS, 2 + PARTS);
  for (unsigned i = 0; i < PARTS; i++) part_give_back(parts[i]);
  check_totals(15 + PARTS, 2 + PARTS);
  CHECK_COUNT(count_stored(false), ==, PARTS);
  const size_t size = (pages_totals().returned - before) / (PARTS - STORES_KEPT);
  CHECK_COUNT(size, >=, sizeof(struct part_store));
  CHECK_COUNT(stores_trim(false), ==, 0);
  struct part *const again = part_take_blank(lifetime);
  use(again, CLASS, 1);
  part_give_back(again);
  CHECK_COUNT(stores_trim(false), ==, (STORES_KEPT - 1) * size);
  CHECK_COUNT(stores_trim(true), ==, size);
  CHECK_COUNT(stores_trim(true), ==, 0);
  check_totals(16 + PARTS, 3 + PARTS);
  const size_t committed = pages_totals().committed;
  for (unsigned i = 0; i < PARTS; i++) {
    parts[i] = part_take_blank(lifetime);
    use(parts[i], CLASS, 1);
    CHECK_COUNT(parts[i]->bins[CLASS].allocations, ==, 1); /* the others are where memory that went back is counted */
  }
  CHECK_COUNT(pages_totals().committed, ==, committed);
  check_totals(16 + 2 * PARTS, 3 + 2 * PARTS);
}

int main(void) {
  start_floors();
  current_part = part_acquire();
  lifetime = lifetime_make();
  one_after_the_other();
  many();
  pages_check();
  return 0;
}
