/* large: see large.h.                                                                                floor: slab */
#include "slab/large.h"

#include "os/os.h"
#include <string.h>

/* Below this, copying costs less than the kernel's page table work and its TLB shoot-down. */
#define MOVE_LEAST (256 * KiB)
/* Below this they are copied, too, where the target is in memory: its pages would be lost, and those that moved away
 * taken anew, a fault each, by whoever is next to have the source. */
#define MOVE_ALWAYS (8 * MiB)

size_t large_granules(size_t size) { return divide_up(size, GRANULE); }
static size_t usable(size_t size) { return round_up(size, os_page_size); }

/* Release: what is freed was counted as allocated, by whoever did that, before anyone can see this. */
static void count(const struct large_counts *counts, uint64_t *counter, uint64_t by) {
  if (UNLIKELY(!counts->is_own)) __atomic_fetch_add(counter, by, __ATOMIC_RELEASE);
  else __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + by, __ATOMIC_RELEASE);
}

static void count_allocated(struct large_counts *counts, const struct run *run) {
  count(counts, &counts->allocations, 1);
  count(counts, &counts->allocated_bytes, run->size);
}

static void count_freed(struct large_counts *counts, const struct run *run) {
  count(counts, &counts->frees, 1);
  count(counts, &counts->freed_bytes, run->size);
}

static struct run *alloc_run(size_t size, size_t alignment, bool *zero, struct pages_how *how) {
  size_t guard = TSLAB_HARDENED && pages_wants_guard(false) ? 1 : 0;
  struct run *run = pages_alloc(large_granules(size) + guard, max_size(alignment, GRANULE), RUN_LARGE, zero, how);
  if (!run) return NULL;
  if (guard) pages_guard(run, size);
  run->size = usable(size);
  return run;
}

void *large_alloc(size_t size, size_t alignment, bool *zero, struct pages_how *how, struct large_counts *counts) {
  struct run *run = alloc_run(size, alignment, zero, how);
  if (!run) return NULL;
  count_allocated(counts, run);
  return run_start(run);
}

void *large_again(struct run *run, size_t size, struct large_counts *counts) {
  run->size = usable(size);
  STORE_RACING(run->kind, RUN_LARGE);
  count_allocated(counts, run);
  return run_start(run);
}

void large_bury(struct run *run, struct large_counts *counts) {
  count_freed(counts, run);
  run->was = LARGE_WAS;
  if (TSLAB_HARDENED) pages_free_guard(run);
}

static void *move(struct run *run, size_t size, struct large_counts *counts) {
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
  count_allocated(counts, target);
  count_freed(counts, run);
  run->was = LARGE_WAS;
  if (TSLAB_HARDENED) pages_free_guard(run);
  pages_free(run, moved && keep == run_bytes(run));
  return run_start(target);
}

static bool resize_in_place(struct run *run, size_t size) {
  size_t granules = large_granules(size);
  bool guarded = TSLAB_HARDENED && pages_has_guard(run);
  if (granules == run->granules && (!guarded || usable(size) == run->size)) return true;
  if (!guarded) return pages_resize(run, granules);
  if (!pages_unguard(run)) return false;
  bool done = pages_resize(run, granules + 1);
  pages_guard(run, done ? size : run->size);
  return done;
}

void *large_resize(struct run *run, size_t size, struct large_counts *counts) {
  size_t old = run->size;
  if (!resize_in_place(run, size)) return move(run, size, counts);
  run->size = usable(size);
  if (run->size > old) count(counts, &counts->allocated_bytes, run->size - old);
  else count(counts, &counts->freed_bytes, old - run->size);
  return run_start(run);
}

void large_add_freed(struct large_counts *sum, const struct large_counts *counts) {
  sum->frees += __atomic_load_n(&counts->frees, __ATOMIC_ACQUIRE);
  sum->freed_bytes += __atomic_load_n(&counts->freed_bytes, __ATOMIC_ACQUIRE);
}

void large_add_allocated(struct large_counts *sum, const struct large_counts *counts) {
  sum->allocations += __atomic_load_n(&counts->allocations, __ATOMIC_RELAXED);
  sum->allocated_bytes += __atomic_load_n(&counts->allocated_bytes, __ATOMIC_RELAXED);
}
