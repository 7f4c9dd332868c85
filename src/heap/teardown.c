/* teardown: see teardown.h.                                                                         floor: heap */
#include "heap/teardown.h"

#include "heap/bins.h"
#include "heap/bump.h"
#include "heap/flush.h"
#include "heap/guard.h"
#include "heap/profile.h"
#include "heap/quarantine.h"
#include "heap/tcache.h"
#include "os/os.h"
#include "slab/large.h"

/* ---- closing ----------------------------------------------------------------------------------------------------- */

static bool is_past(uint64_t deadline_ns) { return deadline_ns != UINT64_MAX && os_now_ns() >= deadline_ns; }

/* With MAGAZINE_PIECE, the work between two reads of the clock: some 20 microseconds. */
#define SLABS_PIECE 64

bool heap_close(struct heap *heap, uint64_t deadline_ns) {
  lock_take(&heap->lock);
  heap->closing = true;
  lock_release(&heap->lock);
  if (!heap_has_slabs(heap)) return true;
  if (TSLAB_HARDENED) quarantine_empty(heap);
  /* Reads the clock only after a piece of work, so that every call does at least one. */
  for (unsigned class = 0; class < CLASSES; class++) {
    if (tcache_is_folded(heap, class)) continue;
    bins_return(&heap->lock, tcache_take(heap, class));
    if (is_past(deadline_ns)) return false;
  }
  while (heap_flush_magazines(heap, MAGAZINE_PIECE) >= MAGAZINE_PIECE)
    if (is_past(deadline_ns)) return false;
  while (bins_retire_empty(heap, SLABS_PIECE) == SLABS_PIECE)
    if (is_past(deadline_ns)) return false;
  return true;
}

void heap_rest(struct heap *heap) {
  if (!heap_has_slabs(heap)) return;
  if (TSLAB_HARDENED) quarantine_empty(heap);
  for (unsigned class = 0; class < CLASSES; class++)
    if (!tcache_is_folded(heap, class)) bins_return(&heap->lock, tcache_take(heap, class));
}

/* ---- destroying -------------------------------------------------------------------------------------------------- */

/* Returns true if another thread purges or relists a slab, which it may do without the lock. */
static bool has_pending(struct arena *arena) {
  struct arena_walk walk;
  for (struct run *run = arena_walk(&walk, arena); run; run = arena_walk_on(&walk, 1)) {
    if (run->kind != RUN_SLAB || !(atomic_load_explicit(&run->word, memory_order_acquire) & SLAB_PENDING)) continue;
    arena_walk_end(&walk);
    return true;
  }
  return false;
}

/* Counts the blocks of each class that the heap's slabs have handed out. */
static void count_used(const struct heap *heap, uint64_t used[CLASSES]) {
  struct arena_walk walk;
  for (struct run *run = arena_walk(&walk, heap->arena); run; run = arena_walk_on(&walk, 1)) {
    if (run->kind != RUN_SLAB || atomic_load_explicit(&run->heap, memory_order_relaxed) != heap) continue;
    uint64_t word = atomic_load_explicit(&run->word, memory_order_acquire);
    used[run->class] += slab_linked(word) - slab_count(word);
  }
}

/* Clears everything that leads to slabs; the totals stay. */
static void forget(struct heap *heap, unsigned class, uint64_t live) {
  struct bin *bin = &heap->bins[class];
  counter_add_release(&bin->frees, live);
  counter_add_release(&heap->freed, live);
  STORE_RACING(bin->retired, bin->retired + bin->slabs);
  __atomic_store_n(&bin->first, 0, __ATOMIC_RELAXED); /* bins.c reads it without the lock */
  STORE_RACING(bin->slabs, 0);
  STORE_RACING(bin->magazine_blocks, 0);
  bin->last = bin->listed = 0;
  bin->newest = bin->oldest = 0;
  bin->cap = 0;
  tcache_set(heap, class, EMPTY_CHAIN);
}

void heap_forget(struct heap *heap, bool drained) {
  if (!heap_has_slabs(heap)) return;
  uint64_t used[CLASSES] = {0};
  if (TSLAB_HARDENED) quarantine_empty(heap);
  while (has_pending(heap->arena)) os_rest();
  if (!drained) count_used(heap, used);
  lock_take(&heap->lock);
  for (unsigned class = 0; class < CLASSES; class++) {
    tcache_fold(heap, class);
    uint64_t cached = heap->bins[class].magazine_blocks + tcache_chain(heap, class).count;
    forget(heap, class, drained ? 0 : used[class] - cached);
  }
  __atomic_store_n(&heap->magazine_bytes, 0, __ATOMIC_RELAXED);
  STORE_RACING(heap->granted_bytes, 0);
  heap->opened = 0;
  heap->free_magazine = 0;
  heap->unused_magazine = 1;
  heap->lost = heap->served - heap->freed; /* not 0 in a fork child that lost lists */
  atomic_store_explicit(&heap->slab_granules, 0, memory_order_relaxed);
  lock_release(&heap->lock);
}

static COLD void end_sample(struct run *run) {
  profile_freed(run, run_start(run));
  if (guard_is_on()) guard_ends(run_start(run), 1);
}

void run_retire(struct run *run) {
  switch (run->kind) {
  case RUN_SLAB: slab_retire(run); return;
  case RUN_CHUNK: bump_retire(run); return;
  default:
    if (profile_is_on()) end_sample(run);
    large_retire(run, &counters_here()->large);
  }
}
