/* teardown: see teardown.h.                                                                          floor: epoch */
#include "epoch/teardown.h"

#include "base/options.h"
#include "epoch/trap.h"
#include "heap/chunk_cache.h"
#include "heap/teardown.h"

/* Gives a slab to the reserve or to the kernel. For the kernel, which purges it, it need not be wiped. */
static void give_slab(struct returning *returning, struct run *slab) {
  if (!reserve_has_room()) {
    returning_keep(returning, slab);
    return;
  }
  slab_wipe(slab);
  returning_add(returning, slab);
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
    bool is_slab = run->kind == RUN_SLAB, is_chunk = run->kind == RUN_CHUNK;
    size_t bytes = run_bytes(run);
    collected += bytes;
    run_retire(run);
    arena_unlist(arena, run);
    if (options.on_destroy == DESTROY_TRAPS && trap_set(run)) continue;
    if (is_slab) give_slab(&returning, run);
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
