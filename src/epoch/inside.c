/* inside: see inside.h.                                                                              floor: epoch */
#include "epoch/inside.h"

#include "os/os.h"

_Atomic int inside_barrier;

#if defined(__SANITIZE_THREAD__)
static bool barrier_everywhere(void) { return false; } /* the detector does not know the system call */
#else
static bool barrier_everywhere(void) { return os_barrier_everywhere(); }
#endif

void inside_decide_barrier(void) {
  if (atomic_load_explicit(&inside_barrier, memory_order_relaxed) != BARRIER_UNKNOWN) return;
  bool everywhere = barrier_everywhere();
  int unknown = BARRIER_UNKNOWN;
  atomic_compare_exchange_strong(&inside_barrier, &unknown, everywhere ? BARRIER_ONE_SIDED : BARRIER_TWO_SIDED);
}

void inside_barrier_of_one(void) {
  if (inside_is_one_sided()) os_barrier_everywhere();
  else FENCE_ALL(); /* an exchange is less than a full fence on arm64: later loads could come before it */
}

void inside_shut(struct epoch *e) {
  atomic_exchange_explicit(&e->open_id, 0, memory_order_seq_cst);
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) {
    if (!p->thread || p->thread == current_thread) continue;
    inside_barrier_of_one();
    return;
  }
}

unsigned inside_threads(const struct epoch *e) {
  unsigned inside = 0;
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) inside += inside_is_busy(p);
  return inside;
}
