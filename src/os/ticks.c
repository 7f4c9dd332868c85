/* ticks: see ticks.h.                                                                                floor: os */
#include "os/ticks.h"

#include <stdatomic.h>

#define SETTLED_NS 100000000

_Atomic uint64_t ticks_scale;
_Atomic bool ticks_settled;
static struct {
  uint64_t ticks, ns;
} start;

void ticks_start(void) {
  start.ns = os_now_raw_ns();
  start.ticks = ticks_now();
}

/* Threads that do it at the same time find the same. */
void ticks_calibrate(void) {
  if (atomic_load_explicit(&ticks_settled, memory_order_relaxed)) return;
  uint64_t ns = os_now_raw_ns() - start.ns, ticks = ticks_now() - start.ticks;
  if (ns == 0 || ticks == 0) return;
  atomic_store_explicit(&ticks_scale, (uint64_t)(((unsigned __int128)ns << 32) / ticks), memory_order_relaxed);
  if (ns >= SETTLED_NS) atomic_store_explicit(&ticks_settled, true, memory_order_relaxed);
}
