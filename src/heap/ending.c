/* ending: what the heap does when an epoch closes, is destroyed or reset; see heap.h.                floor: heap */
#include "heap/bins.h"
#include "heap/heap.h"
#include "heap/lists.h"
#include "heap/sample.h"
#include "os/os.h"
#include "slab/large.h"

/* ---- closing ----------------------------------------------------------------------------------------------------- */

static struct chain take_list(struct part *part, unsigned class) {
  lock_take(&part->lock);
  list_settle(part, class);
  struct chain chain = list_chain(part, class);
  list_set(part, class, EMPTY_CHAIN);
  lock_release(&part->lock);
  return chain;
}

static bool is_past(uint64_t deadline_ns) { return deadline_ns != UINT64_MAX && os_now_ns() >= deadline_ns; }

/* Between two looks at the clock: some 20 microseconds' work. */
#define DEPOT_PIECE (64 * KiB)
#define SLABS_PIECE 64

bool heap_close(struct part *part, uint64_t deadline_ns) {
  lock_take(&part->lock);
  part->closing = true;
  lock_release(&part->lock);
  if (!part_has_slabs(part)) return true;
  if (TSLAB_HARDENED) quarantine_empty(part);
  /* The clock is asked after each piece of work, so that every call does one. */
  for (unsigned class = 0; class < CLASSES; class++) {
    if (list_is_settled(part, class)) continue;
    bins_return(&part->lock, take_list(part, class));
    if (is_past(deadline_ns)) return false;
  }
  while (heap_flush_depot(part, DEPOT_PIECE) >= DEPOT_PIECE)
    if (is_past(deadline_ns)) return false;
  while (bins_retire_empty(part, SLABS_PIECE) == SLABS_PIECE)
    if (is_past(deadline_ns)) return false;
  return true;
}

void heap_rest(struct part *part) {
  if (!part_has_slabs(part)) return;
  if (TSLAB_HARDENED) quarantine_empty(part);
  for (unsigned class = 0; class < CLASSES; class++)
    if (!list_is_settled(part, class)) bins_return(&part->lock, take_list(part, class));
}

/* ---- destroying -------------------------------------------------------------------------------------------------- */

/* Somebody may be purging holes of a slab, or settling it, without the lock. */
static bool has_pending(struct lifetime *lifetime) {
  struct lifetime_walk walk;
  for (struct run *run = lifetime_walk(&walk, lifetime); run; run = lifetime_walk_on(&walk, 1)) {
    if (run->kind != RUN_SLAB || !(atomic_load_explicit(&run->word, memory_order_acquire) & SLAB_PENDING)) continue;
    lifetime_walk_end(&walk);
    return true;
  }
  return false;
}

/* Blocks of each class that the part's slabs count as used. */
static void count_used(const struct part *part, uint64_t used[CLASSES]) {
  struct lifetime_walk walk;
  for (struct run *run = lifetime_walk(&walk, part->lifetime); run; run = lifetime_walk_on(&walk, 1)) {
    if (run->kind != RUN_SLAB || atomic_load_explicit(&run->part, memory_order_relaxed) != part) continue;
    uint64_t word = atomic_load_explicit(&run->word, memory_order_acquire);
    used[run->class] += slab_linked(word) - slab_count(word);
  }
}

/* Everything that led to slabs; the totals stay. */
static void forget(struct part *part, unsigned class, uint64_t live) {
  struct bin *bin = &part->bins[class];
  bump(&bin->frees, live);
  bump(&part->freed, live);
  STORE_RACING(bin->retired, bin->retired + bin->slabs);
  __atomic_store_n(&bin->first, 0, __ATOMIC_RELAXED); /* for the look of bins.c without the lock */
  STORE_RACING(bin->slabs, 0);
  STORE_RACING(bin->depot_blocks, 0);
  bin->last = bin->listed = bin->depot_least = 0;
  bin->newest = bin->oldest = 0;
  bin->cap = 0;
  list_set(part, class, EMPTY_CHAIN);
}

void heap_abandon(struct part *part, bool drained) {
  if (!part_has_slabs(part)) return;
  uint64_t used[CLASSES] = {0};
  if (TSLAB_HARDENED) quarantine_empty(part);
  while (has_pending(part->lifetime)) os_rest();
  if (!drained) count_used(part, used);
  lock_take(&part->lock);
  for (unsigned class = 0; class < CLASSES; class++) {
    list_settle(part, class);
    uint64_t cached = part->bins[class].depot_blocks + list_chain(part, class).count;
    forget(part, class, drained ? 0 : used[class] - cached);
  }
  __atomic_store_n(&part->depot_bytes, 0, __ATOMIC_RELAXED);
  STORE_RACING(part->granted_bytes, 0);
  part->opened = 0;
  part->free_batch = 0;
  part->unused_batch = 1;
  part->lost = part->served - part->freed; /* lists that a fork child lost made it less */
  atomic_store_explicit(&part->slab_granules, 0, memory_order_relaxed);
  lock_release(&part->lock);
}

void heap_bury(struct run *run) {
  switch (run->kind) {
  case RUN_SLAB: slab_bury(run); return;
  case RUN_CHUNK: bump_bury(run); return;
  default: large_bury(run, &tally_here()->large);
  }
}
