/* heap: see heap.h.                                                                                 floor: heap */
#include "heap/heap.h"

#include "os/os.h"

const struct bin no_bin;
const struct quarantine no_quarantine;
struct heap empty_heap = {
    .list = {[0 ... CLASSES - 1] = CHAIN_END}, .counters = &shared_counters, .plain = &empty_heap};
__thread struct heap *current_heap = &empty_heap;
/* Lies beside current_heap. The smaller thread-local variables follow in link order, so static TLS is 24 bytes without
 * a hole. */
__thread struct thread *current_thread __attribute__((section(".tdata.current_thread"))) = NULL;
struct heap common_heap, sampled_heap;
bool common_begun;
uint32_t folded_slabs[CLASSES];
struct heap *_Atomic all_heaps, *_Atomic active_heaps, *_Atomic last_dead_heap;
struct notice *_Atomic notices;
_Atomic uint32_t heaps_here;
_Atomic unsigned unfolded_heaps, live_heaps;
unsigned heaps_given_up;

static uint32_t heaps_made;

_Static_assert(sizeof(struct heap) <= GRANULE / 4, "several heaps to a granule");

void heap_begin_lists(struct heap *heap) {
  heap->plain = heap;
  heap->unused_magazine = 1;
  for (unsigned class = 0; class < CLASSES; class++) {
    heap->list[class] = CHAIN_END;
  }
}

void heap_init(struct heap *heap, bool of_epochs) {
  if (TSLAB_HARDENED) heap->quarantine = (struct quarantine *)(uintptr_t)&no_quarantine;
  heap->index = ++heaps_made;
  atomic_fetch_add_explicit(&heaps_here, 1, memory_order_relaxed);
  heap->of_epochs = of_epochs;
  heap_begin_lists(heap);
}

NOINLINE void heap_notice_first(struct notice *notice) {
  lock_change_begins(); /* a fork child's repair gives all notices again */
  /* Acquire: pairs with the scavenger's release, before which it read `next`. */
  if (!atomic_exchange_explicit(&notice->is_given, true, memory_order_acquire)) {
    notice->next = atomic_load_explicit(&notices, memory_order_relaxed);
    /* Release: pairs with the scavenger's exchange. That takes the whole list, so there is no ABA problem. */
    while (!atomic_compare_exchange_weak_explicit(&notices, &notice->next, notice, memory_order_release,
                                                  memory_order_relaxed)) {}
  }
  lock_change_ends();
}

#define LOOKS_AT_ONCE 64 /* a change takes well under a microsecond */

void heap_look_again(unsigned *looks) {
  lock_look();
  if (++*looks % LOOKS_AT_ONCE == 0) os_rest();
}

struct lock *heap_lock(struct heap *heap) {
  for (;;) {
    struct lock *guard = heap_guard(heap);
    counters_wait(counters_here(), lock_take(guard));
    if (LIKELY(guard == heap_guard(heap))) return guard;
    lock_release(guard); /* in between the heap was folded, or a thread got it */
  }
}
