/* ticks: see ticks.h.                                                                               floor: os */
#include "os/ticks.h"

#include "os/os.h"

#define LONG_ENOUGH_NS 1000000000
#define EARLY_NS       10000000 /* the scale of the process's start serves that long: it is right to a thousandth */
#define TRIES          5

_Atomic uint64_t ticks_scale, ticks_due;
static struct moment {
  uint64_t ticks, ns;
} start;
static _Atomic bool has_started; /* a filter may forbid system calls from now on */

/* Reads both clocks at one moment. The shortest of a few tries counts, because the thread may lose the processor
 * between two reads, and the last comparison holds for good. */
static struct moment look(uint64_t (*clock)(void)) {
  struct moment found = {0, 0};
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    uint64_t before = ticks_now(), ns = clock(), took = ticks_now() - before;
    if (took >= least) continue;
    least = took;
    found = (struct moment){before + took / 2, ns};
  }
  return found;
}

void ticks_start(void) { start = look(os_start_ns); }

/* Returns the nanoseconds since the start; 0 if too little time has passed. */
static uint64_t compare(struct moment now) {
  uint64_t ns = now.ns - start.ns, ticks = now.ticks - start.ticks;
  if (ns == 0 || ticks == 0) return 0;
  atomic_store_explicit(&ticks_scale, (uint64_t)(((unsigned __int128)ns << 32) / ticks), memory_order_relaxed);
  atomic_store_explicit(&ticks_due, ns >= LONG_ENOUGH_NS ? UINT64_MAX : now.ticks + ticks, memory_order_relaxed);
  return ns;
}

void ticks_compare_at_start(void) {
  struct moment now = look(os_start_ns);
  uint64_t ns = compare(now), ticks = now.ticks - start.ticks;
  atomic_store_explicit(&has_started, true, memory_order_relaxed);
  if (ns == 0 || ns >= EARLY_NS) return;
  atomic_store_explicit(&ticks_due, start.ticks + ticks * (EARLY_NS / ns), memory_order_relaxed);
}

/* Several threads may do this at the same time, because they find the same scale. os_now_raw_ns makes no system call,
 * most times. Without a vDSO it calls libc's clock, though, which a sanitizer's runtime replaces that may not have
 * started yet. */
void ticks_compare(void) {
  bool by_libc = atomic_load_explicit(&has_started, memory_order_relaxed) && !os_has_sanitizer();
  compare(look(by_libc ? os_now_raw_ns : os_start_ns));
}

uint64_t ticks_at_ns(uint64_t ticks) { return start.ns + ticks_to_ns(ticks - start.ticks); }
