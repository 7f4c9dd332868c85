/* fork: in a child the other threads' heaps are in the pool, the next threads take over their lists, and no lock is
 * held. In a child that froze no heap leads to a slab. */
#include "unit.h"

#include "heap/check.h"
#include "heap/fast.h"
#include "heap/fork.h"
#include "heap/refill.h"
#include "heap/registry.h"

enum { HEAPS = 20, CLASS = 4 };

static struct heap *heaps[HEAPS];

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
  CHECK(current_heap->live && current_heap->list[CLASS] != CHAIN_END); /* the forking thread's own heap stays whole */
  for (unsigned i = 0; i < HEAPS; i++) {
    struct heap *const heap = heap_acquire();
    CHECK(heap != current_heap && list_is_empty(heap) == (heap != heaps[5]) && heap->store->remote.count == 0);
    heap_check(heap);
    CHECK(heap_refill(heap, CLASS) != NULL);
  }
}

/* Where free memory is never reused, the list that threads share is not reused either. */
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

int main(void) {
  start_floors();
  for (unsigned i = 0; i <= HEAPS; i++) {
    struct heap *const heap = heap_acquire();
    CHECK(heap != NULL);
    if (i < HEAPS) heaps[i] = heap;
  }
  forks();
  return 0;
}
