/* lifetime: slots come one by one and stay; what is charged goes up to every ancestor or to none; the list holds
 * what was added; memory goes to the reserve, to common use or to the kernel, each byte counted once. */
#include "unit.h"

#include "base/options.h"
#include "heap/lifetime.h"

enum { SLOTS = 500, RUNS = 6 };

static struct lifetime *slots[SLOTS + 1];

static void make_slots(void) {
  for (uint32_t i = 1; i <= SLOTS; i++) {
    slots[i] = lifetime_make();
    CHECK(slots[i] != NULL && slots[i]->index == i && lifetimes_made() == i);
    for (size_t at = 0; at < LIFETIME_SLOT; at++)
      if (at >= sizeof(uint32_t)) CHECK_COUNT(((char *)slots[i])[at], ==, 0);
    memset((char *)slots[i] + sizeof(struct lifetime), 0x11, LIFETIME_SLOT - sizeof(struct lifetime));
    slots[i]->budget = SIZE_MAX;
  }
  for (uint32_t i = 1; i <= SLOTS; i++) CHECK(lifetime_at(i) == slots[i] && slots[i]->index == i);
}

static void check_charged(size_t child, size_t parent, size_t grandparent) {
  CHECK_COUNT(slots[1]->charged, ==, child);
  CHECK_COUNT(slots[2]->charged, ==, parent);
  CHECK_COUNT(slots[3]->charged, ==, grandparent);
}

static void budgets(void) {
  struct lifetime *const child = slots[1], *const parent = slots[2], *const grandparent = slots[3];
  child->parent = parent;
  parent->parent = grandparent;
  parent->budget = 10 * GRANULE;
  CHECK(lifetime_charge(child, 4 * GRANULE) && lifetime_charge(parent, 6 * GRANULE));
  check_charged(4 * GRANULE, 10 * GRANULE, 10 * GRANULE);
  CHECK(!lifetime_charge(child, 1) && !lifetime_charge(parent, 1) && lifetime_charge(grandparent, 1));
  check_charged(4 * GRANULE, 10 * GRANULE, 10 * GRANULE + 1);
  lifetime_discharge(child, GRANULE);
  CHECK(lifetime_charge(parent, GRANULE) && !lifetime_charge(child, 1));
  lifetime_discharge(child, 3 * GRANULE);
  lifetime_discharge(parent, 7 * GRANULE);
  lifetime_discharge(grandparent, 1);
  check_charged(0, 0, 0);
  CHECK(lifetime_charge(NULL, SIZE_MAX / 2)); /* epoch 0 */
  parent->budget = SIZE_MAX;
}

static struct run *new_run(struct lifetime *lifetime, size_t granules) {
  bool zero;
  CHECK(lifetime_charge(lifetime, granules * GRANULE));
  struct run *const run = pages_alloc(granules, GRANULE, RUN_LARGE, &zero, NULL);
  CHECK(run != NULL);
  memset(run_start(run), 0x5c, run_bytes(run));
  run->epoch = lifetime->index;
  lifetime_add(lifetime, run);
  return run;
}

/* The newest run first; runs[i] stands for nothing where it is NULL. */
static void check_list(struct lifetime *lifetime, struct run *const *runs) {
  size_t own = 0;
  lifetime_lock(lifetime);
  struct run *run = lifetime_first(lifetime);
  for (int i = RUNS; i-- > 0;) {
    if (!runs[i]) continue;
    CHECK(run == runs[i]);
    own += run_bytes(run);
    run = lifetime_next(run);
  }
  CHECK(run == NULL);
  lifetime_unlock(lifetime);
  CHECK_COUNT(lifetime->own, ==, own);
  check_charged(own, own, own);
}

/* While open: to the reserve while that has room, then to common use, from where it is returned on demand. */
static void releasing(void) {
  struct lifetime *const lifetime = slots[1];
  struct run *runs[RUNS];
  for (int i = 0; i < RUNS; i++) runs[i] = new_run(lifetime, i == 5 ? 3 : 1);
  check_list(lifetime, runs);
  for (int i = 1; i < RUNS; i += 2) { /* from the middle and from the start; the reserve holds one granule */
    lifetime_release(lifetime, runs[i], false);
    runs[i] = NULL;
    check_list(lifetime, runs);
  }
  CHECK_COUNT(lifetime->recycled, ==, GRANULE);
  CHECK_COUNT(lifetime->spilled, ==, 4 * GRANULE);
  CHECK_COUNT(pages_free_dirty(), ==, 4 * GRANULE);
  CHECK_COUNT(lifetime->returned, ==, 0);
  while (lifetime_return_spilled(lifetime, GRANULE)) {}
  CHECK_COUNT(lifetime->returned, ==, 4 * GRANULE);
  CHECK_COUNT(pages_free_dirty(), ==, 0);
  CHECK(!lifetime_return_spilled(lifetime, SIZE_MAX));

  /* Late: nothing lies about, and what was clean already is not counted dirty. */
  lifetime->late = LIFETIME_LATE;
  CHECK_COUNT(reserve_empty(), ==, GRANULE);
  for (int i = 0; i < RUNS; i += 2) {
    lifetime_release(lifetime, runs[i], false);
    runs[i] = NULL;
    check_list(lifetime, runs);
  }
  CHECK_COUNT(lifetime->recycled, ==, 2 * GRANULE);
  CHECK_COUNT(lifetime->returned, ==, 6 * GRANULE);
  CHECK_COUNT(pages_free_dirty(), ==, 0);
  reserve_empty();
  lifetime->late = LIFETIME_NOT_LATE;
  lifetime->recycled = lifetime->returned = 0;
}

/* One of many: nothing is discharged before all are collected. */
static void collecting(void) {
  struct lifetime *const lifetime = slots[1];
  struct run *runs[RUNS] = {new_run(lifetime, 1), new_run(lifetime, 2)};
  size_t bytes = 0;
  for (int i = 0; i < 2; i++) {
    bytes += run_bytes(runs[i]);
    lifetime_unlist(lifetime, runs[i]);
    pages_free(runs[i], false);
    runs[i] = NULL;
    CHECK_COUNT(lifetime->own, ==, 3 * GRANULE);
  }
  CHECK(lifetime_first(lifetime) == NULL);
  lifetime_settle(lifetime, bytes);
  check_list(lifetime, runs);
}

static void prefaulting(void) {
  struct lifetime *const lifetime = slots[1];
  CHECK(lifetime_prepare(lifetime, 2 * GRANULE + 1));
  CHECK_COUNT(lifetime_ready_bytes(lifetime), ==, 3 * GRANULE);
  check_charged(3 * GRANULE, 3 * GRANULE, 3 * GRANULE);
  CHECK(lifetime->own == 0 && lifetime_first(lifetime) == NULL);
  struct run *const run = lifetime_take_ready(lifetime, RUN_CHUNK);
  CHECK(run != NULL && run->kind == RUN_CHUNK && run->granules == 1 && run->epoch == 1 && run->next == 0);
  CHECK_COUNT(lifetime_ready_bytes(lifetime), ==, 2 * GRANULE);
  lifetime_add(lifetime, run);
  lifetime_drop_ready(lifetime);
  CHECK_COUNT(lifetime_ready_bytes(lifetime), ==, 0);
  CHECK(lifetime_take_ready(lifetime, RUN_CHUNK) == NULL);
  check_charged(GRANULE, GRANULE, GRANULE);
  CHECK_COUNT(lifetime->recycled + lifetime->returned, ==, 2 * GRANULE);
  lifetime_release(lifetime, run, false);
  check_charged(0, 0, 0);

  slots[2]->budget = 2 * GRANULE; /* all or nothing */
  CHECK(!lifetime_prepare(lifetime, 3 * GRANULE));
  CHECK_COUNT(lifetime_ready_bytes(lifetime), ==, 0);
  check_charged(0, 0, 0);
  CHECK(lifetime_prepare(lifetime, 2 * GRANULE));
  lifetime_drop_ready(lifetime);
}

/* Every run once, but those that leave meanwhile or come; never more than so many steps under the lock. */
static void walking(void) {
  enum { MANY = 3 * LIFETIME_STEPS };
  static struct run *runs[MANY];
  struct lifetime *const lifetime = slots[4];
  struct lifetime_walk walk, other;
  for (int i = MANY; i-- > 0;) runs[i] = new_run(lifetime, 1);
  int met = 0;
  for (struct run *run = lifetime_walk(&walk, lifetime); run; run = lifetime_walk_on(&walk, 1))
    CHECK(run == runs[met++]);
  CHECK(met == MANY && lifetime->walks == NULL);

  /* The lock is free between two holds: what another thread does then, this one does by releasing it. */
  struct run *run = lifetime_walk(&walk, lifetime);
  CHECK(run == runs[0] && lifetime_walk_on(&walk, 1) == runs[1]);
  lifetime_unlock(lifetime);
  lifetime_release(lifetime, runs[1], false); /* where it is */
  lifetime_release(lifetime, runs[2], false); /* where it goes on */
  lifetime_release(lifetime, runs[3], false);
  runs[3] = new_run(lifetime, 1); /* in front */
  CHECK(lifetime_walk(&other, lifetime) == runs[3]);
  lifetime_walk_end(&other);
  lifetime_lock(lifetime);
  CHECK(lifetime_walk_on(&walk, 1) == runs[4]);
  lifetime_unlock(lifetime);
  for (int i = 5; i < MANY; i++) lifetime_release(lifetime, runs[i], false);
  lifetime_lock(lifetime);
  CHECK(lifetime_walk_on(&walk, 1) == NULL && lifetime->walks == NULL);
  lifetime_release(lifetime, runs[0], false);
  lifetime_release(lifetime, runs[3], false);
  lifetime_release(lifetime, runs[4], false);
  CHECK_COUNT(lifetime->own, ==, 0);
  CHECK_COUNT(lock_steps_most, ==, LIFETIME_STEPS);
}

int main(void) {
  start_floors();
  options.reserve_bytes = GRANULE;
  make_slots();
  budgets();
  pages_purge(UINT64_MAX, SIZE_MAX);
  releasing();
  collecting();
  prefaulting();
  walking();
  pages_check();
  return 0;
}
