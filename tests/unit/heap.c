/* heap: acquired, released to the pool with its lists, acquired again; in a fork child the other threads' heaps are in
 * the pool, their lists given up, and no lock is held. One that holds nothing is folded: no walk meets it. Memory of
 * epochs' blank heaps goes back. */
#include "unit.h"

#include "heap/bump.h"
#include "heap/check.h"
#include "heap/fast.h"
#include "heap/flush.h"
#include "heap/fork.h"
#include "heap/refill.h"
#include "heap/registry.h"
#include "heap/remote.h"
#include "heap/span.h"

enum { HEAPS = 20, CLASS = 4 };

static struct heap *heaps[HEAPS];

static void check_new(struct heap *heap, uint32_t index) {
  CHECK(heap != NULL && heap != &empty_heap && heap->live);
  CHECK_COUNT((uintptr_t)heap % HEAP_ALIGNMENT, ==, 0);
  CHECK_COUNT(heap_class_of(heap, 0), >=, CLASSES);
  CHECK_COUNT(heap->index, ==, index);
  for (unsigned class = 0; class < CLASSES; class++) {
    CHECK(heap->list[class] == CHAIN_END && heap->count[class].now == 0);
    CHECK_COUNT(heap->inverse[class], ==, class_inverse(class));
    CHECK_COUNT(heap_class_of(heap, heap_entry(heap, class)), ==, class);
    CHECK_COUNT(heap_class_of(&empty_heap, heap_entry(heap, class)), >=, CLASSES);
  }
}

static void all_of_them(void) {
  for (unsigned i = 0; i < HEAPS; i++) {
    heaps[i] = heap_acquire();
    check_new(heaps[i], i + 1);
    memset(heaps[i]->magazines, 0x11, sizeof heaps[i]->store->magazines); /* would show in a neighbour */
  }
  unsigned seen = 0;
  for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap) CHECK(p == heaps[HEAPS - ++seen]);
  CHECK_COUNT(seen, ==, HEAPS);
  CHECK_COUNT(live_heaps, ==, HEAPS);
  CHECK_COUNT(unfolded_heaps, ==, 0);
  for (unsigned i = 0; i < HEAPS; i++) memset(heaps[i]->magazines, 0, sizeof heaps[i]->store->magazines);
}

/* Also what waited to be handed to another heap does not stay behind. */
static void pool(void) {
  struct heap *const one = heaps[3], *const other = heaps[4];
  void *const block = heap_refill(one, CLASS), *const remote = heap_refill(other, CLASS);
  CHECK(block != NULL && remote != NULL);
  void *const head = one->list[CLASS];
  struct run *const slab = pages_run_of(remote);
  const unsigned before = slab_count(atomic_load(&slab->word));
  heap_free_remote(one, slab, remote);
  heap_leave(one);
  heap_release(one);
  CHECK_COUNT(slab_count(atomic_load(&slab->word)), ==, before + 1);
  CHECK(!one->live && one->list[CLASS] == head && one->store->remote.count == 0);
  CHECK_COUNT(live_heaps, ==, HEAPS - 1);
  CHECK_COUNT(unfolded_heaps, ==, 1);
  CHECK(heap_acquire() == one && one->live && one->list[CLASS] == head);
  CHECK_COUNT(live_heaps, ==, HEAPS);
  CHECK_COUNT(unfolded_heaps, ==, 0);
  check_new(heap_acquire(), HEAPS + 1);
}

static unsigned count_active(void) {
  unsigned active = 0;
  for (const struct heap *p = atomic_load(&active_heaps); p; p = p->next_active) active++;
  return active;
}

/* A heap that waits in the pool with nothing leaves the list of active heaps, and comes back with its next thread; one
 * that is in use, or holds something, stays. Heaps of epochs are in no such list. */
static void settling(void) {
  const unsigned before = count_active();
  CHECK(!heap_fold(heaps[7]));
  for (unsigned i = 10; i < HEAPS; i++) heap_release(heaps[i]);
  for (unsigned i = 10; i < HEAPS; i++) CHECK(heap_fold(heaps[i]) && !heap_fold(heaps[i]));
  CHECK_COUNT(count_active(), ==, before - (HEAPS - 10));
  CHECK(heap_guard(heaps[10]) == &common_heap.lock && heap_guard(heaps[0]) == &heaps[0]->lock);
  for (unsigned i = HEAPS; i-- > 10;) CHECK(heap_acquire() == heaps[i] && !heaps[i]->folded);
  CHECK_COUNT(count_active(), ==, before);

  CHECK(heap_refill(heaps[7], CLASS) != NULL);
  heap_release(heaps[7]);
  CHECK(!heap_fold(heaps[7])); /* its list holds blocks */
  heaps_fold_dead(heaps[7]);
  CHECK(heaps[7]->folded && heaps[7]->counters == NULL && count_active() == before - 1);
  CHECK(heap_acquire() == heaps[7] && heaps[7]->counters != NULL && count_active() == before);
  check_new(heaps[7], 8);
}

static void check_locks_are_free(void) {
  CHECK(lock_try(&pages_lock) && lock_try(&heaps_lock));
  lock_release(&pages_lock), lock_release(&heaps_lock);
  for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap) {
    CHECK(lock_try(&p->lock));
    lock_release(&p->lock);
  }
}

static bool list_is_empty(const struct heap *heap) {
  return heap->list[CLASS] == CHAIN_END && heap->count[CLASS].now == 0;
}

static void live_as_child(void) {
  heap_retire_others();
  check_locks_are_free();
  CHECK_COUNT(live_heaps, ==, 1);
  CHECK_COUNT(unfolded_heaps, ==, HEAPS);
  CHECK_COUNT(heaps_given_up, ==, HEAPS);
  CHECK(current_heap->live && current_heap->list[CLASS] != CHAIN_END); /* the forking thread's own stays whole */
  for (unsigned i = 0; i < HEAPS; i++) {
    struct heap *const heap = heap_acquire();
    CHECK(heap != current_heap && list_is_empty(heap) && heap->store->remote.count == 0);
    heap_check(heap);
    CHECK(heap_refill(heap, CLASS) != NULL);
  }
}

/* Where free memory serves nobody any more, neither does the list that threads share. */
static void live_frozen(void) {
  CHECK(!list_is_empty(&common_heap));
  heap_freeze(true);
  CHECK(list_is_empty(&common_heap));
  atomic_store(&live_heaps, HEAPS);
  const uint32_t born = common_heap.bins[CLASS].born;
  CHECK(heap_refill(heaps[7], CLASS) != NULL);
  CHECK_COUNT(common_heap.bins[CLASS].born, ==, born + 1);
}

static void forks(void) {
  CHECK(heap_refill(heaps[5], CLASS) && heap_refill(heaps[6], CLASS));
  current_heap = heaps[6];
  CHECK(in_child(live_as_child) == 0);
  CHECK(in_child(live_frozen) == 0);
  check_locks_are_free();
  CHECK_COUNT(live_heaps, ==, HEAPS + 1);
  CHECK(heaps[5]->live && heaps[5]->list[CLASS] != CHAIN_END);
}

/* ---- heaps of epochs --------------------------------------------------------------------------------------------- */

enum { BLANKS = 10 * HEAP_SPAN };
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

/* Granules whose heaps are all blank go back, but for those that are kept until the next trim but one. What their heaps
 * had counted still counts. */
static void blank_heaps(void) {
  struct arena *const arena = arena_make();
  current_heap = heaps[5];
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
  CHECK(current_heap == &empty_heap);
  all_of_them();
  pool();
  settling();
  forks();
  blank_heaps();
  return 0;
}
