/* part: acquired, released to the pool with its lists, acquired again; in a fork child the other threads' parts are in
 * the pool, their lists given up, and no lock is held. One that holds nothing is settled: no walk meets it. */
#include "unit.h"

#include "heap/fast.h"
#include "heap/heap.h"

enum { PARTS = 20, CLASS = 4 };

static struct part *parts[PARTS];

static void check_new(struct part *part, uint32_t index) {
  CHECK(part != NULL && part != &empty_part && part->live);
  CHECK_COUNT((uintptr_t)part % PART_ALIGNMENT, ==, 0);
  CHECK_COUNT(part_class_of(part, 0), >=, CLASSES);
  CHECK_COUNT(part->index, ==, index);
  for (unsigned class = 0; class < CLASSES; class++) {
    CHECK(part->list[class] == CHAIN_END && part->count[class].now == 0);
    CHECK_COUNT(part->inverse[class], ==, class_inverse(class));
    CHECK_COUNT(part_class_of(part, part_home(part, class)), ==, class);
    CHECK_COUNT(part_class_of(&empty_part, part_home(part, class)), >=, CLASSES);
  }
}

static void all_of_them(void) {
  for (unsigned i = 0; i < PARTS; i++) {
    parts[i] = part_acquire();
    check_new(parts[i], i + 1);
    memset(parts[i]->batches, 0x11, sizeof parts[i]->batches); /* would show in a neighbour */
  }
  unsigned seen = 0;
  for (struct part *p = atomic_load(&all_parts); p; p = p->next_part) CHECK(p == parts[PARTS - ++seen]);
  CHECK_COUNT(seen, ==, PARTS);
  CHECK_COUNT(live_parts, ==, PARTS);
  CHECK_COUNT(unsettled_parts, ==, 0);
  for (unsigned i = 0; i < PARTS; i++) memset(parts[i]->batches, 0, sizeof parts[i]->batches);
}

/* Also what waited to be handed to another part does not stay behind. */
static void pool(void) {
  struct part *const one = parts[3], *const other = parts[4];
  void *const block = heap_refill(one, CLASS), *const remote = heap_refill(other, CLASS);
  CHECK(block != NULL && remote != NULL);
  void *const head = one->list[CLASS];
  struct run *const slab = pages_run_of(remote);
  const unsigned before = slab_count(atomic_load(&slab->word));
  heap_free_remote(one, slab, remote);
  heap_leave(one);
  part_release(one);
  CHECK_COUNT(slab_count(atomic_load(&slab->word)), ==, before + 1);
  CHECK(!one->live && one->list[CLASS] == head && one->remote.count == 0);
  CHECK_COUNT(live_parts, ==, PARTS - 1);
  CHECK_COUNT(unsettled_parts, ==, 1);
  CHECK(part_acquire() == one && one->live && one->list[CLASS] == head);
  CHECK_COUNT(live_parts, ==, PARTS);
  CHECK_COUNT(unsettled_parts, ==, 0);
  check_new(part_acquire(), PARTS + 1);
}

static unsigned count_active(void) {
  unsigned active = 0;
  for (const struct part *p = atomic_load(&active_parts); p; p = p->next_active) active++;
  return active;
}

/* A part that waits in a pool with nothing leaves the list of active parts, and comes back with its next thread or
 * epoch; one that is in use, or holds something, stays. */
static void settling(void) {
  static struct lifetime lifetimes[PARTS];
  struct part *blank[PARTS];
  const unsigned before = count_active();
  for (unsigned i = 0; i < PARTS; i++) CHECK((blank[i] = part_take_blank(&lifetimes[i])) != NULL);
  CHECK_COUNT(count_active(), ==, before + PARTS);
  CHECK(!part_settle(blank[0]));
  for (unsigned i = 0; i < PARTS; i++) part_give_back(blank[i]);
  for (unsigned i = 0; i < PARTS; i++) CHECK(part_settle(blank[i]) && !part_settle(blank[i]));
  CHECK_COUNT(count_active(), ==, before);
  CHECK(part_guard(blank[0]) == &common_part.lock && part_guard(parts[0]) == &parts[0]->lock);
  struct part *const again = part_take_blank(&lifetimes[0]);
  CHECK(again == blank[PARTS - 1] && !again->settled && count_active() == before + 1);
  part_give_back(again);
  CHECK(part_settle(again));

  CHECK(heap_refill(parts[7], CLASS) != NULL);
  part_release(parts[7]);
  CHECK(!part_settle(parts[7])); /* its list holds blocks */
  heap_settle_dead(parts[7]);
  CHECK(parts[7]->settled && parts[7]->tally == NULL && count_active() == before - 1);
  CHECK(part_acquire() == parts[7] && parts[7]->tally != NULL && count_active() == before);
  check_new(parts[7], 8);
}

static void check_locks_are_free(void) {
  CHECK(lock_try(&pages_lock) && lock_try(&parts_lock));
  lock_release(&pages_lock), lock_release(&parts_lock);
  for (struct part *p = atomic_load(&all_parts); p; p = p->next_part) {
    CHECK(lock_try(&p->lock));
    lock_release(&p->lock);
  }
}

static bool list_is_empty(const struct part *part) {
  return part->list[CLASS] == CHAIN_END && part->count[CLASS].now == 0;
}

static void live_as_child(void) {
  parts_bury_others();
  check_locks_are_free();
  CHECK_COUNT(live_parts, ==, 1);
  CHECK_COUNT(unsettled_parts, ==, PARTS);
  CHECK_COUNT(parts_given_up, ==, PARTS);
  CHECK(current_part->live && current_part->list[CLASS] != CHAIN_END); /* the forking thread's own stays whole */
  for (unsigned i = 0; i < PARTS; i++) {
    struct part *const part = part_acquire();
    CHECK(part != current_part && list_is_empty(part) && part->remote.count == 0);
    part_check(part);
    CHECK(heap_refill(part, CLASS) != NULL);
  }
}

/* Where free memory serves nobody any more, neither does the list that threads share. */
static void live_frozen(void) {
  CHECK(!list_is_empty(&common_part));
  parts_freeze(true);
  CHECK(list_is_empty(&common_part));
  atomic_store(&live_parts, PARTS);
  const uint32_t born = common_part.bins[CLASS].born;
  CHECK(heap_refill(parts[7], CLASS) != NULL);
  CHECK_COUNT(common_part.bins[CLASS].born, ==, born + 1);
}

static void forks(void) {
  CHECK(heap_refill(parts[5], CLASS) && heap_refill(parts[6], CLASS));
  current_part = parts[6];
  CHECK(in_child(live_as_child) == 0);
  CHECK(in_child(live_frozen) == 0);
  check_locks_are_free();
  CHECK_COUNT(live_parts, ==, PARTS + 1);
  CHECK(parts[5]->live && parts[5]->list[CLASS] != CHAIN_END);
}

int main(void) {
  start_floors();
  CHECK(current_part == &empty_part);
  all_of_them();
  pool();
  settling();
  forks();
  return 0;
}
