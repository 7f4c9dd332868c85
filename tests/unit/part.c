/* part: acquired, released to the pool with its lists, acquired again; in a fork child the other threads' parts are in
 * the pool, their lists given up, and no lock is held. One that holds nothing is settled: no walk meets it. Memory of
 * epochs' blank parts goes back. */
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
    memset(parts[i]->batches, 0x11, sizeof parts[i]->store->batches); /* would show in a neighbour */
  }
  unsigned seen = 0;
  for (struct part *p = atomic_load(&all_parts); p; p = p->next_part) CHECK(p == parts[PARTS - ++seen]);
  CHECK_COUNT(seen, ==, PARTS);
  CHECK_COUNT(live_parts, ==, PARTS);
  CHECK_COUNT(unsettled_parts, ==, 0);
  for (unsigned i = 0; i < PARTS; i++) memset(parts[i]->batches, 0, sizeof parts[i]->store->batches);
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
  CHECK(!one->live && one->list[CLASS] == head && one->store->remote.count == 0);
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

/* A part that waits in the pool with nothing leaves the list of active parts, and comes back with its next thread; one
 * that is in use, or holds something, stays. Parts of epochs are in no such list. */
static void settling(void) {
  const unsigned before = count_active();
  CHECK(!part_settle(parts[7]));
  for (unsigned i = 10; i < PARTS; i++) part_release(parts[i]);
  for (unsigned i = 10; i < PARTS; i++) CHECK(part_settle(parts[i]) && !part_settle(parts[i]));
  CHECK_COUNT(count_active(), ==, before - (PARTS - 10));
  CHECK(part_guard(parts[10]) == &common_part.lock && part_guard(parts[0]) == &parts[0]->lock);
  for (unsigned i = PARTS; i-- > 10;) CHECK(part_acquire() == parts[i] && !parts[i]->settled);
  CHECK_COUNT(count_active(), ==, before);

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
    CHECK(part != current_part && list_is_empty(part) && part->store->remote.count == 0);
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

/* ---- parts of epochs --------------------------------------------------------------------------------------------- */

enum { BLANKS = 10 * PART_SPAN };
static struct part *blanks[BLANKS];

static unsigned count_of_epochs(void) {
  unsigned count = 0;
  for (struct part *p = parts_first_of_epochs(); p; p = parts_next_of_epochs(p)) count += p->of_epochs;
  return count;
}

static uint64_t sum_of_locks(void) {
  uint64_t sum = parts_folded_locks.taken;
  for (struct part *p = parts_first_of_epochs(); p; p = parts_next_of_epochs(p)) sum += p->lock.taken;
  return sum;
}

static void take_blanks(struct lifetime *lifetime) {
  for (unsigned i = 0; i < BLANKS; i++) {
    blanks[i] = part_take_blank(lifetime);
    CHECK(blanks[i] != NULL && blanks[i]->live && blanks[i]->lifetime == lifetime);
    CHECK(blanks[i]->list[CLASS] == CHAIN_END);
    CHECK(!part_has_store(blanks[i]) && (uintptr_t)blanks[i] % PART_ALIGNMENT == 0);
  }
}

/* Granules whose parts are all blank go back, but for those that are kept until the next trim but one. What their parts
 * had counted still counts. */
static void blank_parts(void) {
  struct lifetime *const lifetime = lifetime_make();
  current_part = parts[5];
  const unsigned here = parts_here;
  take_blanks(lifetime);
  CHECK_COUNT(count_of_epochs(), ==, BLANKS);
  for (unsigned i = 0; i < BLANKS; i++) blanks[i]->bump.allocations = i;
  const uint64_t bumped = bump_allocations(), locks = sum_of_locks(), returned = pages_totals().returned;
  for (unsigned i = 0; i < BLANKS; i++) part_give_back(blanks[i]);
  CHECK_COUNT(count_of_epochs(), ==, SPANS_KEPT * PART_SPAN);
  CHECK_COUNT(parts_here, ==, here + SPANS_KEPT * PART_SPAN);
  CHECK_COUNT(pages_totals().returned - returned, ==, (10 - SPANS_KEPT) * GRANULE);
  CHECK_COUNT(bump_allocations(), ==, bumped);
  CHECK_COUNT(sum_of_locks(), ==, locks + BLANKS);
  const size_t committed = pages_totals().committed;
  for (int round = 0; round < 3; round++) {
    for (unsigned i = 0; i < BLANKS; i++) blanks[i] = part_take_blank(lifetime);
    CHECK_COUNT(count_of_epochs(), ==, BLANKS);
    for (unsigned i = 0; i < BLANKS; i++) part_give_back(blanks[i]);
  }
  CHECK_COUNT(parts_trim(false), ==, 0); /* all were needed since the last time */
  blanks[0] = part_take_blank(lifetime);
  part_give_back(blanks[0]);
  CHECK_COUNT(parts_trim(false), ==, (SPANS_KEPT - 1) * GRANULE);
  CHECK_COUNT(parts_trim(true), ==, GRANULE);
  CHECK_COUNT(parts_here, ==, here);
  CHECK_COUNT(pages_totals().committed, ==, committed);
  CHECK_COUNT(bump_allocations(), ==, bumped);
}

int main(void) {
  start_floors();
  CHECK(current_part == &empty_part);
  all_of_them();
  pool();
  settling();
  forks();
  blank_parts();
  return 0;
}
