/* teardown: see teardown.h.                                                                          floor: epoch */
#include "epoch/teardown.h"

#include "base/options.h"
#include "epoch/trap.h"
#include "heap/chunk_cache.h"
#include "heap/teardown.h"

/* Returns true if the run should go straight to the kernel: a slab for which the reserve has no room is not wiped. */
static bool is_for_kernel(const struct run *run) {
  if (run->kind != RUN_SLAB) return false;
  if (!reserve_has_room()) return true;
  slab_wipe(run);
  return false;
}

struct returning teardown_all_but(struct epoch *e, const struct run *but, struct heap *keeper) {
  struct arena *arena = &e->arena;
  struct returning returning = {0};
  size_t collected = 0;
  for (unsigned steps = 0;; steps++) {
    if (!epoch_is_owned(e)) lock_count_steps(steps);
    arena_lock(arena);
    struct run *run = arena_first(arena);
    if (run && run == but) run = arena_next(run);
    arena_unlock(arena);
    if (!run) break;
    bool is_chunk = run->kind == RUN_CHUNK, for_kernel = is_for_kernel(run);
    size_t bytes = run_bytes(run);
    collected += bytes;
    run_retire(run);
    arena_unlist(arena, run);
    if (options.on_destroy == DESTROY_TRAPS && trap_set(run)) continue;
    if (for_kernel) returning_keep(&returning, run);
    else if (is_chunk && keeper && chunk_cache_put(keeper, run)) returning.recycled += bytes;
    else returning_add(&returning, run);
  }
  returning_flush(&returning);
  arena_finish_release(arena, collected);
  return returning;
}

void teardown_all(struct epoch *e, struct heap *keeper) {
  struct returning all = teardown_all_but(e, NULL, keeper);
  atomic_fetch_add_explicit(&e->arena.recycled, all.recycled, memory_order_relaxed);
  atomic_fetch_add_explicit(&e->arena.returned, all.returned, memory_order_relaxed);
}
