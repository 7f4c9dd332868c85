/* ticks: see ticks.h.                                                                                floor: os */
#include "os/ticks.h"

#define LONG_ENOUGH_NS 1000000000
#define TRIES          5

_Atomic uint64_t ticks_scale, ticks_due;
static struct moment {
  uint64_t ticks, ns;
} start;

/* What both clocks say at one moment: of a few tries the one that took least, for between two looks a thread may lose
 * the processor, and the last comparison holds for good. */
static struct moment look(void) {
  struct moment found = {0, 0};
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    uint64_t before = ticks_now(), ns = os_start_ns(), took = ticks_now() - before;
    if (took >= least) continue;
    least = took;
    found = (struct moment){before + took / 2, ns};
  }
  return found;
}

void ticks_start(void) { start = look(); }

/* Threads that do it at the same time find the same. */
void ticks_compare(void) {
  struct moment now = look();
  uint64_t ns = now.ns - start.ns, ticks = now.ticks - start.ticks;
  if (ns == 0 || ticks == 0) return;
  atomic_store_explicit(&ticks_scale, (uint64_t)(((unsigned __int128)ns << 32) / ticks), memory_order_relaxed);
  atomic_store_explicit(&ticks_due, ns >= LONG_ENOUGH_NS ? UINT64_MAX : now.ticks + ticks, memory_order_relaxed);
}

uint64_t ticks_at_ns(uint64_t ticks) { return start.ns + ticks_to_ns(ticks - start.ticks); }
