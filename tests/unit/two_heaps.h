/* two_heaps.h: two heaps that one thread uses in turn, as two threads would, and the expected counts of their calls. */
#ifndef TSLAB_TESTS_TWO_HEAPS_H
#define TSLAB_TESTS_TWO_HEAPS_H

#include "unit.h"

#include "heap/fast.h"
#include "heap/refill.h"
#include "heap/registry.h"
#include "heap/remote.h"
#include "heap/totals.h"

static struct heap *heaps[2];
static uint64_t allocations[CLASSES], frees[CLASSES], remote[CLASSES];

static inline void start_two_heaps(void) {
  start_floors();
  for (int i = 0; i < 2; i++) CHECK((heaps[i] = heap_acquire()) != NULL);
}

static inline void be(unsigned thread) { current_heap = heaps[thread]; }

static inline void *allocate(unsigned class) {
  void *const block = fast_pop(current_heap, class, pages.key);
  allocations[class]++;
  return block ? block : heap_refill(current_heap, class);
}

static inline void release(void *block, unsigned class) {
  struct fast_seen seen;
  frees[class]++;
  switch (fast_push(block, &seen)) {
  case FREED: return;
  case LIST_FULL: heap_overflow(current_heap, class, block); return;
  case NOT_HERE:
    remote[class]++;
    switch (heap_keep_remote(current_heap, seen.owner, block)) {
    case FREED: return;
    case LIST_FULL: heap_overflow(current_heap, class, block); return;
    default: heap_free_remote(current_heap, pages_run_of(block), block); return;
    }
  case UNCLEAR:
  case NOT_A_BLOCK: CHECK(!"a block");
  }
}

static inline struct class_totals totals_of(unsigned class) {
  struct class_totals totals = {0};
  for (struct heap *p = atomic_load(&active_heaps); p; p = p->next_active) heap_totals(p, class, &totals);
  heap_epoch_totals(class, &totals);
  return totals;
}

static inline void check_totals(unsigned class) {
  struct class_totals totals = totals_of(class);
  CHECK_COUNT(totals.allocations, ==, allocations[class]);
  CHECK_COUNT(totals.frees, ==, frees[class]);
  CHECK_COUNT(totals.remote_frees, ==, remote[class]);
  CHECK_COUNT(totals.born - totals.retired, ==, totals.slabs);
}

#endif
