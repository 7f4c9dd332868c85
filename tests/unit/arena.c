/* arena: slots are made one by one and stay; a charge reaches every ancestor or none; the list holds the added runs;
   memory goes to the reserve, to common use or to the kernel, and each byte counts once. */
#include "unit.h"

#include "base/options.h"
#include "heap/arena.h"

enum { SLOTS = 500, RUNS = 6 };

static struct arena *slots[SLOTS + 1];

static void make_slots(void) {
  for (uint32_t i = 1; i <= SLOTS; i++) {
    slots[i] = arena_make();
    CHECK(slots[i] != NULL && slots[i]->index == i && arenas_made() == i);
    for (size_t at = 0; at < ARENA_SLOT; at++)
      if (at >= sizeof(uint32_t)) CHECK_COUNT(((char *)slots[i])[at], ==, 0);
    memset((char *)slots[i] + sizeof(struct arena), 0x11, ARENA_SLOT - sizeof(struct arena));
    slots[i]->budget = SIZE_MAX;
  }
  for (uint32_t i = 1; i <= SLOTS; i++) CHECK(arena_at(i) == slots[i] && slots[i]->index == i);
}

static void check_charged(size_t child, size_t parent, size_t grandparent) {
  CHECK_COUNT(slots[1]->charged, ==, child);
  CHECK_COUNT(slots[2]->charged, ==, parent);
  CHECK_COUNT(slots[3]->charged, ==, grandparent);
}

static void budgets(void) {
  struct arena *const child = slots[1], *const parent = slots[2], *const grandparent = slots[3];
  child->parent = parent;
  parent->parent = grandparent;
  parent->budget = 10 * GRANULE;
  CHECK(arena_charge(child, 4 * GRANULE) && arena_charge(parent, 6 * GRANULE));
  check_charged(4 * GRANULE, 10 * GRANULE, 10 * GRANULE);
  CHECK(!arena_charge(child, 1) && !arena_charge(parent, 1) && arena_charge(grandparent, 1));
  check_charged(4 * GRANULE, 10 * GRANULE, 10 * GRANULE + 1);
  arena_discharge(child, GRANULE);
  CHECK(arena_charge(parent, GRANULE) && !arena_charge(child, 1));
  arena_discharge(child, 3 * GRANULE);
  arena_discharge(parent, 7 * GRANULE);
  arena_discharge(grandparent, 1);
  check_charged(0, 0, 0);
  CHECK(arena_charge(NULL, SIZE_MAX / 2)); /* epoch 0 */
  parent->budget = SIZE_MAX;
}

static struct run *new_run(struct arena *arena, size_t granules) {
  bool zero;
  CHECK(arena_charge(arena, granules * GRANULE));
  struct run *const run = pages_alloc(granules, GRANULE, RUN_LARGE, &zero, NULL);
  CHECK(run != NULL);
  memset(run_start(run), 0x5c, run_bytes(run));
  run->epoch = arena->index;
  arena_add(arena, run);
  return run;
}

/* The newest run first; a NULL in runs[i] stands for no run. */
static void check_list(struct arena *arena, struct run *const *runs) {
  size_t own = 0;
  arena_lock(arena);
  struct run *run = arena_first(arena);
  for (int i = RUNS; i-- > 0;) {
    if (!runs[i]) continue;
    CHECK(run == runs[i]);
    own += run_bytes(run);
    run = arena_next(run);
  }
  CHECK(run == NULL);
  arena_unlock(arena);
  CHECK_COUNT(arena->own, ==, own);
  check_charged(own, own, own);
}

/* An open epoch gives memory to the reserve while the reserve has room, then to common use, which returns it on
   demand. */
static void releasing(void) {
  struct arena *const arena = slots[1];
  struct run *runs[RUNS];
  for (int i = 0; i < RUNS; i++) runs[i] = new_run(arena, i == 5 ? 3 : 1);
  check_list(arena, runs);
  for (int i = 1; i < RUNS; i += 2) { /* from the middle and from the start; the reserve holds one granule */
    arena_release(arena, runs[i], false);
    runs[i] = NULL;
    check_list(arena, runs);
  }
  CHECK_COUNT(arena->recycled, ==, GRANULE);
  CHECK_COUNT(arena->spilled, ==, 4 * GRANULE);
  CHECK_COUNT(pages_free_dirty(), ==, 4 * GRANULE);
  CHECK_COUNT(arena->returned, ==, 0);
  while (arena_return_spilled(arena, GRANULE)) {}
  CHECK_COUNT(arena->returned, ==, 4 * GRANULE);
  CHECK_COUNT(pages_free_dirty(), ==, 0);
  CHECK(!arena_return_spilled(arena, SIZE_MAX));

  /* Late: no memory is kept ready, and clean memory is not counted as dirty. */
  arena->release_target = RELEASE_TO_KERNEL;
  CHECK_COUNT(reserve_empty(), ==, GRANULE);
  for (int i = 0; i < RUNS; i += 2) {
    arena_release(arena, runs[i], false);
    runs[i] = NULL;
    check_list(arena, runs);
  }
  CHECK_COUNT(arena->recycled, ==, 2 * GRANULE);
  CHECK_COUNT(arena->returned, ==, 6 * GRANULE);
  CHECK_COUNT(pages_free_dirty(), ==, 0);
  reserve_empty();
  arena->release_target = RELEASE_TO_COMMON_USE;
  arena->recycled = arena->returned = 0;
}

/* lifetime_release in two steps: the first collects all arenas, the second discharges them. */
static void collecting(void) {
  struct arena *const arena = slots[1];
  struct run *runs[RUNS] = {new_run(arena, 1), new_run(arena, 2)};
  size_t bytes = 0;
  for (int i = 0; i < 2; i++) {
    bytes += run_bytes(runs[i]);
    arena_unlist(arena, runs[i]);
    pages_free(runs[i], false);
    runs[i] = NULL;
    CHECK_COUNT(arena->own, ==, 3 * GRANULE);
  }
  CHECK(arena_first(arena) == NULL);
  arena_finish_release(arena, bytes);
  check_list(arena, runs);
}

static void prefaulting(void) {
  struct arena *const arena = slots[1];
  CHECK(arena_prepare(arena, 2 * GRANULE + 1));
  CHECK_COUNT(arena_ready_bytes(arena), ==, 3 * GRANULE);
  check_charged(3 * GRANULE, 3 * GRANULE, 3 * GRANULE);
  CHECK(arena->own == 0 && arena_first(arena) == NULL);
  struct run *const run = arena_take_ready(arena, RUN_CHUNK);
  CHECK(run != NULL && run->kind == RUN_CHUNK && run->granules == 1 && run->epoch == 1 && run->next == 0);
  CHECK_COUNT(arena_ready_bytes(arena), ==, 2 * GRANULE);
  arena_add(arena, run);
  arena_drop_ready(arena);
  CHECK_COUNT(arena_ready_bytes(arena), ==, 0);
  CHECK(arena_take_ready(arena, RUN_CHUNK) == NULL);
  check_charged(GRANULE, GRANULE, GRANULE);
  CHECK_COUNT(arena->recycled + arena->returned, ==, 2 * GRANULE);
  arena_release(arena, run, false);
  check_charged(0, 0, 0);

  slots[2]->budget = 2 * GRANULE; /* all or nothing */
  CHECK(!arena_prepare(arena, 3 * GRANULE));
  CHECK_COUNT(arena_ready_bytes(arena), ==, 0);
  check_charged(0, 0, 0);
  CHECK(arena_prepare(arena, 2 * GRANULE));
  arena_drop_ready(arena);
}

/* The walk visits each run once, apart from runs that leave or arrive meanwhile, and takes a bounded number of steps
   under the lock. */
static void walking(void) {
  enum { MANY = 3 * ARENA_STEPS };
  static struct run *runs[MANY];
  struct arena *const arena = slots[4];
  struct arena_walk walk, other;
  for (int i = MANY; i-- > 0;) runs[i] = new_run(arena, 1);
  int met = 0;
  for (struct run *run = arena_walk(&walk, arena); run; run = arena_walk_on(&walk, 1))
    CHECK(run == runs[met++]);
  CHECK(met == MANY && arena->walks == NULL);

  /* The lock is free between two holds: a release here stands for the work of another thread. */
  struct run *run = arena_walk(&walk, arena);
  CHECK(run == runs[0] && arena_walk_on(&walk, 1) == runs[1]);
  arena_unlock(arena);
  arena_release(arena, runs[1], false); /* the run at which the walk is */
  arena_release(arena, runs[2], false); /* the run at which the walk goes on */
  arena_release(arena, runs[3], false);
  runs[3] = new_run(arena, 1); /* in front */
  CHECK(arena_walk(&other, arena) == runs[3]);
  arena_walk_end(&other);
  arena_lock(arena);
  CHECK(arena_walk_on(&walk, 1) == runs[4]);
  arena_unlock(arena);
  for (int i = 5; i < MANY; i++) arena_release(arena, runs[i], false);
  arena_lock(arena);
  CHECK(arena_walk_on(&walk, 1) == NULL && arena->walks == NULL);
  arena_release(arena, runs[0], false);
  arena_release(arena, runs[3], false);
  arena_release(arena, runs[4], false);
  CHECK_COUNT(arena->own, ==, 0);
  CHECK_COUNT(lock_steps_most, ==, ARENA_STEPS);
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
