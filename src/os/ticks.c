/* ticks: see ticks.h.                                                                                floor: os */
#include "os/ticks.h"

#define LONG_ENOUGH_NS 1000000000

_Atomic uint64_t ticks_scale, ticks_due;
static struct {
  uint64_t ticks, ns;
} start;

void ticks_start(void) {
  start.ns = os_start_ns();
  start.ticks = ticks_now();
}

/* Threads that do it at the same time find the same. */
void ticks_compare(void) {
  uint64_t ns = os_start_ns() - start.ns, now = ticks_now(), ticks = now - start.ticks;
  if (ns == 0 || ticks == 0) return;
  atomic_store_explicit(&ticks_scale, (uint64_t)(((unsigned __int128)ns << 32) / ticks), memory_order_relaxed);
  atomic_store_explicit(&ticks_due, ns >= LONG_ENOUGH_NS ? UINT64_MAX : now + ticks, memory_order_relaxed);
}

uint64_t ticks_at_ns(uint64_t ticks) { return start.ns + ticks_to_ns(ticks - start.ticks); }
