/* large: see large.h.                                                                                floor: slab */
#include "slab/large.h"

#include "os/os.h"
#include <string.h>

/* Below this, copying costs less than the kernel's page table work and its TLB shoot-down. */
#define MOVE_LEAST (256 * KiB)
/* Below this they are copied, too, where the target is in memory: its pages would be lost, and those that moved away
 * taken anew, a fault each, by whoever is next to have the source. */
#define MOVE_ALWAYS (8 * MiB)

static _Atomic uint64_t allocations, frees, live_bytes;

static size_t granules_for(size_t size) { return divide_up(size, GRANULE); }
static size_t usable(size_t size) { return round_up(size, os_page_size); }

static void count_live(size_t before, size_t after) {
  atomic_fetch_add_explicit(&live_bytes, after - before, memory_order_relaxed);
}

static struct run *alloc_run(size_t size, size_t alignment, bool *zero, struct pages_how *how) {
  size_t guard = TSLAB_HARDENED && pages_wants_guard(false) ? 1 : 0;
  struct run *run = pages_alloc(granules_for(size) + guard, max_size(alignment, GRANULE), RUN_LARGE, zero, how);
  if (!run) return NULL;
  if (guard) pages_guard(run, size);
  run->size = usable(size);
  return run;
}

size_t large_run_bytes(size_t size) { return granules_for(size) << GRANULE_SHIFT; }

void *large_alloc(size_t size, size_t alignment, bool *zero, struct pages_how *how) {
  struct run *run = alloc_run(size, alignment, zero, how);
  if (!run) return NULL;
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  count_live(0, run->size);
  return run_start(run);
}

void large_bury(struct run *run) {
  atomic_fetch_add_explicit(&frees, 1, memory_order_release);
  count_live(run->size, 0);
  run->was = LARGE_WAS;
  if (TSLAB_HARDENED) pages_free_guard(run);
}

void large_free(struct run *run) {
  large_bury(run);
  pages_free(run, false);
}

static void *move(struct run *run, size_t size) {
  bool zero;
  struct run *target = alloc_run(size, GRANULE, &zero, NULL);
  if (!target) return NULL;
  size_t old = run->size, keep = min_size(old, target->size);
  enum os_moved how = NOT_MOVED;
  bool copies = keep < MOVE_LEAST || (!zero && keep < MOVE_ALWAYS);
  if (!copies && !os_is_locked(run_start(target)) && pages_may_move(target))
    how = os_move(run_start(run), run_start(target), keep);
  if (how == LOST) { /* the target's granules stay in use for ever, by nobody */
    target->kind = RUN_META;
    return NULL;
  }
  if (how == NOT_MOVED) memcpy(run_start(target), run_start(run), keep);
  bool moved = how == MOVED;
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&frees, 1, memory_order_release);
  count_live(old, target->size);
  run->was = LARGE_WAS;
  if (TSLAB_HARDENED) pages_free_guard(run);
  pages_free(run, moved && keep == run_bytes(run));
  return run_start(target);
}

static bool resize_in_place(struct run *run, size_t size) {
  size_t granules = granules_for(size);
  bool guarded = TSLAB_HARDENED && pages_has_guard(run);
  if (granules == run->granules && (!guarded || usable(size) == run->size)) return true;
  if (!guarded) return pages_resize(run, granules);
  if (!pages_unguard(run)) return false;
  bool done = pages_resize(run, granules + 1);
  pages_guard(run, done ? size : run->size);
  return done;
}

void *large_resize(struct run *run, size_t size) {
  size_t old = run->size;
  if (!resize_in_place(run, size)) return move(run, size);
  run->size = usable(size);
  count_live(old, run->size);
  return run_start(run);
}

struct large_totals large_totals(void) {
  struct large_totals totals = {.frees = atomic_load_explicit(&frees, memory_order_acquire)}; /* never more than: */
  totals.allocations = atomic_load_explicit(&allocations, memory_order_relaxed);
  totals.live_bytes = atomic_load_explicit(&live_bytes, memory_order_relaxed);
  return totals;
}
