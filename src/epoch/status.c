/* status: see status.h.                                                                              floor: epoch */
#include "epoch/status.h"

#include "epoch/inside.h"
#include "heap/bump.h"
#include "heap/tcache.h"
#include "os/os.h"
#include <string.h>

struct live {
  uint64_t blocks, bytes, runs, pinned;
};

/* Adds a run's live blocks. Returns the steps that this took. */
static unsigned add_run(const struct run *run, struct live *to) {
  struct chunk_live live = {0, 0};
  unsigned steps = 1;
  if (run->kind == RUN_SLAB) {
    uint64_t word = atomic_load_explicit(&run->word, memory_order_acquire);
    live.blocks = slab_linked(word) - slab_count(word);
    live.bytes = live.blocks * class_size(run->class);
  } else if (run->kind == RUN_CHUNK) {
    live = chunk_live(run);
    steps = ARENA_CHUNK_STEPS;
    if (bump_blocks(run) == 0) return steps; /* an unused chunk counts as reserve */
  } else if (run->kind == RUN_LARGE) {
    live = (struct chunk_live){1, run->size};
  }
  to->blocks += live.blocks;
  to->bytes += live.bytes;
  to->runs++;
  to->pinned += live.blocks != 0;
  return steps;
}

/* Subtracts the blocks in lists and magazines, which their slabs count as used. */
static void subtract_cached(struct heap *heap, struct live *from) {
  if (!heap_has_slabs(heap)) return;
  lock_take(&heap->lock);
  for (unsigned class = 0; class < CLASSES; class++) {
    uint64_t cached = tcache_totals(heap, class).length + heap->bins[class].magazine_blocks;
    cached = min_size(cached, from->blocks); /* the thread may have taken more since the slabs were read */
    from->blocks -= cached;
    from->bytes -= min_size(cached * class_size(class), from->bytes);
  }
  lock_release(&heap->lock);
}

static struct live live_of(struct epoch *e) {
  struct live live = {0};
  struct arena_walk walk;
  unsigned steps;
  for (struct run *run = arena_walk(&walk, &e->arena); run; run = arena_walk_on(&walk, steps))
    steps = add_run(run, &live);
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) subtract_cached(p, &live);
  return live;
}

/* Returns the bytes of a heap's chunk from which no block was handed out. Such a chunk counts as reserve. */
static size_t idle_bytes(const struct heap *heap) {
  return LOAD_RACING(heap->bump.count) == 0 ? LOAD_RACING(heap->bump.bytes) : 0;
}

/* Returns how long ago the close was done, at least 1; 0 if it was not. */
static uint64_t closed_ns(const struct epoch *e, uint64_t age_ns) {
  if (epoch_state(e) != EPOCH_CLOSING || e->closed_after == 0) return 0;
  uint64_t after = (e->closed_after - (uint64_t)1) * CLOSED_UNIT;
  return max_size(age_ns - min_size(after, age_ns), 1);
}

void status_of(struct epoch *e, tslab_epoch_status *out) {
  unsigned inside = inside_threads(e); /* before the blocks: a thread may leave meanwhile */
  struct live live = live_of(e);
  const struct arena *arena = &e->arena;
  const struct epoch *parent = (const struct epoch *)(const void *)arena->parent;
  uint64_t idle_chunks = 0;
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) idle_chunks += idle_bytes(p);
  uint64_t own = atomic_load_explicit(&arena->own, memory_order_relaxed) + arena_ready_bytes(arena);
  uint64_t charged = atomic_load_explicit(&arena->charged, memory_order_relaxed);
  uint64_t age_ns = os_now_coarse_ns() - e->opened_ns;
  *out = (tslab_epoch_status){
      .epoch = epoch_id(e),
      .era = e->era,
      .state = epoch_state(e) == EPOCH_OPEN ? TSLAB_EPOCH_OPEN : TSLAB_EPOCH_CLOSING,
      .flags = e->flags,
      .age_ns = age_ns,
      .threads_inside = inside,
      .live_blocks = live.blocks,
      .live_bytes = live.bytes,
      .slabs = live.runs,
      .slabs_pinned = min_size(live.pinned, live.blocks), /* some slabs may hold only blocks that are on lists */
      .committed_bytes = own - idle_chunks,
      .budget_bytes = arena->budget == SIZE_MAX ? 0 : arena->budget,
      .charged_bytes = charged - idle_chunks,
      .refused = atomic_load_explicit(&arena->refused, memory_order_relaxed),
      .diverted = atomic_load_explicit(&e->diverted, memory_order_relaxed),
      .parent = parent ? epoch_id(parent) : 0,
      .allocations = epoch_allocations(e),
      .closed_ns = closed_ns(e, age_ns),
  };
  memcpy(out->label, e->label, sizeof out->label);
}

void status_each_survivor(struct epoch *e, void (*visit)(void *, size_t, void *), void *arg) {
  struct arena_walk walk;
  for (struct run *run = arena_walk(&walk, &e->arena); run; run = arena_walk_on(&walk, ARENA_CALLS_STEPS)) {
    if (run->kind == RUN_CHUNK) chunk_each_live(run, visit, arg);
    else if (run->kind == RUN_LARGE) visit(run_start(run), run->size, arg);
    else slab_each_used(run, visit, arg);
  }
}

int status_read(uint64_t id, tslab_epoch_status *out) {
  struct epoch *e = epoch_slot(id);
  if (epoch_error(e, id) == ESTALE) return ESTALE;
  struct lock *gate = epoch_take(e);
  bool stale = epoch_error(e, id) == ESTALE;
  if (!stale) status_of(e, out);
  epoch_release(e, gate);
  return stale ? ESTALE : 0;
}
