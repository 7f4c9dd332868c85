/* api: calls that concern all memory: owners, purges, limits.                                       floor: malloc */
#include "heap/arena.h"
#include "process/limits.h"
#include "process/process.h"
#include "runtime/scavenger.h"
#include "tslab/tslab.h"

bool tslab_owns(const void *p) {
  struct run *run = process_has_started() ? pages_run_of(p) : NULL;
  return run && run->kind != RUN_META && run->kind != RUN_UNMAPPED;
}

size_t tslab_purge(void) { return scavenger_purge(); }

int tslab_memory_limit(uint64_t hard, uint64_t soft) {
  int error = limits_set(hard, soft);
  if (error != 0) return error;
  struct pages_totals totals = pages_totals();
  if (totals.held > min_size(totals.hard_limit, totals.soft_limit)) scavenger_purge();
  return 0;
}

int tslab_malloc_trim(size_t pad) {
  (void)pad; /* the scavenger's next tick would take such a pad anyway */
  return scavenger_purge() != 0;
}

/* glibc's parameters run from M_ARENA_MAX to M_KEEP, without 0; the newest glibc accepts every value of each. They name
 * parts that this library does not have (arenas, fast bins, a heap top, blocks with mappings of their own). mallopt
 * accepts each and changes nothing, because some programs end if it refuses one. */
enum { ARENA_MAX = -8, KEEP = 4 };

int tslab_mallopt(int parameter, int value) {
  (void)value;
  return parameter >= ARENA_MAX && parameter <= KEEP && parameter != 0;
}
