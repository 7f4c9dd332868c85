/* heap: see heap.h.                                                                                  floor: heap */
#include "heap/heap.h"

#include "base/options.h"
#include "heap/bins.h"
#include "heap/depot.h"
#include "heap/fast.h"
#include "heap/label.h"
#include "heap/large_cache.h"
#include "heap/lists.h"
#include "heap/misuse.h"
#include "heap/sample.h"
#include "heap/store.h"
#include "slab/large.h"
#include <limits.h>

static void count_lock(const struct part *part, unsigned class, uint64_t waited) {
  tally_lock(part->tally, class, waited);
  if (!part->lifetime) return;
  struct label *label = &labels[part->lifetime->label];
  shared_add(waited ? &label->lock_contended : &label->lock_fast, 1);
}

/* The class has let pass the mallocs that it drew: its list goes aside, so that the next one comes by, or, after some
 * frees, the first that finds none of these left. Not COLD: compilers would take its callers' usual path for cold. */
static NOINLINE void arm(struct part *part, unsigned class, unsigned held) {
  struct bin *bin = &part->bins[class];
  if (!options.sample) {
    bin->countdown = INT32_MAX;
    return;
  }
  while (LIKELY(bin->countdown <= 0) && bin->due < UINT8_MAX) {
    bin->countdown += sample_draw(part);
    bin->due++;
  }
  list_set_aside(part, class, held);
}

INLINE void arm_if_due(struct part *part, unsigned class, unsigned held) {
  const struct bin *bin = &part->bins[class];
  if (TSLAB_TELEMETRY && UNLIKELY(bin->countdown <= 0 || bin->due)) arm(part, class, held);
}

/* How the call was served. */
static enum path served_by(const struct part *part) {
  uint32_t stages = part->tally->stages & ((1u << PATHS_OF_CLASSES) - 1);
  return stages ? (enum path)log2_floor(stages) : PATH_SLAB;
}

/* A thread of many gets slabs of its own for a class once it uses it: until then it would hold a page or more of each
 * class that it ever took a block of. docs/decisions/0031. */
#define SHARING_THREADS 16
#define SHARED_BLOCKS   64 /* taken by a thread from slabs that it shares */
#define SHARED_AT_ONCE  8
#define SHARED_BYTES    512

static bool uses_little(const struct part *part, unsigned class) {
  const struct bin *bin = &part->bins[class];
  return bin->allocations < SHARED_BLOCKS && bin->slabs == 0 && !part->lifetime &&
         atomic_load_explicit(&live_parts, memory_order_relaxed) > SHARING_THREADS;
}

static struct chain take_from_slabs(struct part *part, unsigned class) {
  if (UNLIKELY(uses_little(part, class)))
    return bins_take_shared(part, class, blocks_in(class, SHARED_BYTES, SHARED_AT_ONCE));
  return bins_take(part, class, list_cap(&part->bins[class], class) / 4u);
}

void *heap_refill(struct part *part, unsigned class) {
  if (UNLIKELY(!part_has_store(part)) && !part_make_store(part)) return NULL;
  struct bin *bin = &part->bins[class];
  if (part->store->remote.count) heap_flush_remote(part); /* a thread that frees no more must not keep them */
  count_lock(part, class, lock_take(&part->lock));
  list_settle(part, class);
  bump(&bin->refills, 1);
  bin->drained = 0;
  if (bin->cap == 0) list_open(part, class);
  if (LIKELY(part->list[class] == CHAIN_END)) { /* else settling it brought back what was aside */
    struct chain chain = depot_take(part, class);
    if (bin->halvings) bin->halvings = 0;
    else if (chain.count > 0) list_grow(part, class, true); /* the list was too short for it */
    if (chain.count == 0) chain = take_from_slabs(part, class);
    else tally_stage(part->tally, PATH_DEPOT);
    list_set(part, class, chain);
  }
  lock_release(&part->lock);
  bool has_some = block_is_intact(part->list[class]);
  if (TSLAB_HARDENED && !has_some && quarantine_of(part, class)) { /* rather than none */
    quarantine_empty(part);
    has_some = block_is_intact(part->list[class]);
  }
  if (!has_some) return NULL;
  /* Before the list counts it: who looks in between must not take it for one that the list served. */
  tally_add(&part->tally->refills[class].served[served_by(part)], 1);
  FENCE_STORES();
  void *const block = fast_pop(part, class, (uintptr_t)pages.base);
  if (bin->countdown < INT32_MAX) bin->countdown++; /* it is none of those that are drawn from */
  arm_if_due(part, class, 0);
  return block;
}

void *heap_take_bad_list(struct part *part, unsigned class) {
  void **block = part->list[class];
  if (LIKELY(block == CHAIN_END)) return NULL;
  part->list[class] = CHAIN_END;
  list_settle(part, class);
  if (part->list[class] == CHAIN_END) list_set(part, class, EMPTY_CHAIN); /* else it is what was aside */
  return block;
}

/* Of the batch of remote frees, without the locks that its way to the slabs takes. The hardened build looked at each
 * free. */
static void *find_double_remote(struct part *part) {
  if (!part_has_store(part)) return NULL;
  void *found = NULL;
  unsigned seen = 0;
  for (; !TSLAB_HARDENED && !found && seen < part->store->remote.count; seen++) {
    void *block = part->store->remote_blocks[seen];
    const struct run *run = pages_run_of(block);
    if (!run || run->kind != RUN_SLAB) break; /* a second free has ended its slab, and nothing can be said of it */
    if (slab_refuses(block)) found = block;
    block_mark_free(block);
  }
  for (unsigned i = 0; i < seen; i++) block_mark(part->store->remote_blocks[i], 0);
  return found;
}

void *heap_find_double(struct part *part) {
  if (part->sampling.aside) list_join_aside(part);
  if (TSLAB_HARDENED) quarantine_empty(part);
  void *remote = find_double_remote(part);
  if (remote) return remote;
  for (unsigned class = 0; class < CLASSES; class++) {
    unsigned length = list_length(part, class);
    void *found = NULL;
    unsigned seen = 0;
    for (void *b = part->list[class]; b != CHAIN_END && seen < length; b = block_next(b), seen++) {
      if (!block_is_intact(b)) {
        found = b;
        break;
      }
      block_mark_met(b);
    }
    void *b = part->list[class];
    for (unsigned i = 0; i < seen; i++, b = block_next(b)) block_mark_free(b);
    if (found) return found;
  }
  return NULL;
}

void heap_tell_double(struct part *part) {
  void *twice = find_double_remote(part);
  if (twice) block_mark_free(twice); /* the line that tells it looks for the mark */
  else twice = heap_find_double(part);
  if (twice) misuse_freed(twice);
}

/* A thread that goes on freeing will not want its depot's blocks soon, and each of them keeps a slab from being free as
 * a whole: it begins to empty when as many blocks went past it
 * as it holds. */
static bool passes_depot(const struct bin *bin) {
  return bin->drained > 0 && bin->drained >= LOAD_RACING(bin->depot_blocks);
}

/* Moves the class's list out of the way. Returns what must go to the slabs, for which the depot had no room: this list
 * and not an older one, whose blocks the processor no longer has at hand. */
static struct chain put_by(struct part *part, unsigned class, bool draining) {
  struct bin *bin = &part->bins[class];
  struct chain chain = list_chain(part, class);
  if (draining && (passes_depot(bin) || depot_is_full(part, class, chain.count))) { /* nothing to lock for */
    list_shrink(part, class);
    list_set(part, class, EMPTY_CHAIN);
    return chain;
  }
  count_lock(part, class, lock_take(&part->lock));
  if (!draining) bin->drained = 0;
  if (bin->cap == 0) list_open(part, class);
  else if (draining) list_shrink(part, class);
  else list_grow(part, class, true);
  /* What is freed next waits in quarantine, so the next malloc would have all of it back, and the list grow on. */
  bool comes_back = TSLAB_HARDENED && chain.count > list_cap(bin, class);
  if (chain.count > 0 && !comes_back && depot_put(part, class, chain)) chain = EMPTY_CHAIN;
  list_set(part, class, EMPTY_CHAIN);
  lock_release(&part->lock);
  return chain;
}

/* A draining thread returns this many blocks of the depot with each of its lists: few, so that no single free pays for
 * a whole batch (docs/decisions/0040). */
#define PASSED_ON 8

static struct chain with_some_of_depot(struct part *part, unsigned class, struct chain chain) {
  struct chain astray = EMPTY_CHAIN;
  count_lock(part, class, lock_take(&part->lock));
  chain = depot_take_some(part, class, PASSED_ON, chain, &astray);
  lock_release(&part->lock);
  bins_return(&part->lock, astray);
  return chain;
}

/* Apart, so that the usual visit, which only counts, need not save what this one does. */
static NOINLINE void empty_list(struct part *part, unsigned class, bool draining) {
  struct bin *bin = &part->bins[class];
  struct chain homeward = put_by(part, class, draining);
  if (draining) bin->drained += homeward.count;
  if (draining && passes_depot(bin) && LOAD_RACING(bin->depot_blocks) > 0)
    homeward = with_some_of_depot(part, class, homeward);
  bins_return(&part->lock, homeward);
}

/* Frees in a row that come to visit because a list that is aside is held; then no malloc is to be expected soon. */
#define HELD_MOST 32

bool heap_overflow(struct part *part, unsigned class, void *block) {
  struct bin *bin = &part->bins[class];
  /* The fast path counted a free that it then did not make. */
  STORE_RACING(part->count[class].now, part->count[class].now + ROOM_ONE - 1);
  /* Then its room was cut, and that this was used up says nothing; how long the list is does. */
  bool was_aside = part->sampling.aside && part->sampling.class == class;
  unsigned mallocs = list_settle(part, class), held = 0;
  if (was_aside && mallocs == 0) held = part->sampling.held % HELD_MOST;
  bump(&bin->overflows, 1);
  struct chain chain = list_chain(part, class);
  /* Mostly the frees between two visits were balanced by mallocs, and the list is nowhere near full. */
  unsigned cap = list_cap(bin, class), most = was_aside ? cap : cap - cap / 4u;
  bool has_room = (was_aside || mallocs > 0) && chain.count <= most;
  if (has_room) {
    if (!was_aside) list_grow(part, class, false);
    list_set(part, class, chain);
  } else {
    empty_list(part, class, mallocs == 0 && !was_aside);
  }
  STORE_RACING(part->count[class].now, part->count[class].now - (ROOM_ONE - 1));
  if (TSLAB_HARDENED) {
    quarantine_enter(part, class, block);
  } else {
    block_mark_free(block);
    block_link(block, part->list[class]);
    part->list[class] = block;
  }
  if (mallocs > 0 || held) arm_if_due(part, class, was_aside ? held + 1 : 0);
  return !has_room;
}

/* Frees by threads without a part: the first few of a thread, and those after its death. Many threads may end at the
 * same moment, so each adds to the counters that its thread-local storage's address picks. */
#define HOMELESS_COUNTERS 16
static struct homeless {
  _Atomic uint64_t frees[CLASSES] ALIGNED(CACHE_LINE);
} homeless_frees[HOMELESS_COUNTERS];

static unsigned homeless_index(void) {
  uint32_t page = (uint32_t)((uintptr_t)&current_part >> 12); /* no two threads' storage is closer */
  return page * UINT32_C(2654435769) >> 28;                    /* the golden ratio's: spreads equal distances */
}
_Static_assert(HOMELESS_COUNTERS == 1 << (32 - 28), "the index has four bits");

void heap_push_remote(struct part *part, unsigned class, void *block) {
  struct remote *remote = &part->store->remote;
  store_add_remote(part->store, block);
  remote->room -= (int32_t)max_size(class_size(class), REMOTE_LEAST);
  if (remote->room > 0) return;
  struct timing timing;
  sample_begin_path(&timing);
  heap_flush_remote(part);
  sample_end_path(&timing, PATH_FLUSH);
}

static void free_at_once(struct lock *gate, void *block) {
  block_mark_free(block);
  block_link(block, CHAIN_END);
  bins_return(gate, (struct chain){block, 1});
}

/* Counts first: a fork child that has the count and not the push takes the block for lost, and counts it as leaked. */
static void free_homeless(struct run *slab, void *block) {
  shared_add(&homeless_frees[homeless_index()].frees[slab->class], 1);
  free_at_once(NULL, block);
}

void heap_free_remote(struct part *part, struct run *slab, void *block) {
  if (UNLIKELY(part == &empty_part)) {
    free_homeless(slab, block);
    return;
  }
  bump(&part->bins[slab->class].remote_frees, 1);
  if (slab->epoch != 0) free_at_once(&part->lock, block); /* an epoch's end must not wait for company */
  else if (TSLAB_HARDENED) quarantine_enter_remote(part, slab->class, block);
  else heap_push_remote(part, slab->class, block);
}

void heap_flush_remote(struct part *part) {
  struct remote *remote = &part->store->remote;
  unsigned count = remote->count;
  if (count == 0) return;
  remote->count = 0;
  remote->room = REMOTE_BYTES;
  bins_return_batch(part, part->store->remote_blocks, count);
}

/* ---- large blocks ------------------------------------------------------------------------------------------------ */

void *heap_large_alloc(struct part *part, size_t size, size_t alignment, bool *zero) {
  struct lifetime *lifetime = part->lifetime;
  size_t bytes = large_run_bytes(size);
  struct pages_how how = {0};
  tally_stage(part->tally, PATH_LARGE);
  struct run *again = lifetime || alignment > GRANULE ? NULL : large_cache_take(part, large_granules(size));
  if (again) {
    *zero = false;
    return large_again(again, size, &part->tally->large);
  }
  if (lifetime && !lifetime_charge(lifetime, bytes)) return NULL;
  void *block = large_alloc(size, alignment, zero, &how, &part->tally->large);
  tally_wait(part->tally, how.waited);
  if (!lifetime) return block;
  if (!block) {
    lifetime_discharge(lifetime, bytes);
    return NULL;
  }
  struct run *run = pages.runs + granule_of(block);
  run->epoch = lifetime->index;
  lifetime_add(lifetime, run);
  atomic_fetch_add_explicit(&lifetime->large, 1, memory_order_relaxed);
  return block;
}

bool heap_large_keep(struct part *part, struct run *run) {
  if (run->epoch != 0 || part == &empty_part || !large_cache_has_room(part, run)) return false;
  large_bury(run, &tally_here()->large);
  large_cache_put(part, run);
  return true;
}

void heap_large_free(struct part *part, struct run *run) {
  large_bury(run, &tally_here()->large);
  if (run->epoch != 0) lifetime_release(lifetime_at(run->epoch), run, false);
  else if (part != &empty_part && large_cache_make_room(part, run)) large_cache_put(part, run);
  else pages_free(run, false);
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

struct leaked leaked;

void heap_bury_others(void) {
  parts_bury_others();
  bins_after_fork();
}

/* This thread's, which wait to go to their slabs. */
static void count_remote(uint64_t count[CLASSES]) {
  if (!current_thread) return;
  for (struct part *p = atomic_load_explicit(&active_parts, memory_order_acquire); p; p = p->next_active) {
    for (unsigned i = 0; i < p->store->remote.count; i++) {
      const struct run *run = pages_run_of(p->store->remote_blocks[i]);
      if (run && run->kind == RUN_SLAB) count[run->class]++; /* else freed twice */
    }
    if (TSLAB_HARDENED) quarantine_count_remote(p, count);
  }
}

/* What slabs hand out is live, or on a list or batch that somebody has, or lost. */
void heap_count_leaked(void) {
  uint64_t used[CLASSES] = {0}, had[CLASSES] = {0};
  bins_count_used(used);
  count_remote(had);
  leaked.blocks = leaked.bytes = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct class_totals totals = {0};
    for (struct part *p = atomic_load_explicit(&active_parts, memory_order_acquire); p; p = p->next_active)
      heap_totals(p, class, &totals);
    heap_epoch_totals(class, &totals);
    had[class] += totals.allocations - totals.frees - heap_homeless_frees(class) + totals.cached;
    if (used[class] <= had[class]) continue;
    leaked.blocks += used[class] - had[class];
    leaked.bytes += (used[class] - had[class]) * class_size(class);
  }
}

void heap_freeze(bool knows_its_thread) {
  parts_freeze(knows_its_thread);
  leaked.frozen = pages_freeze();
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* At most so many blocks, and about so many bytes; whole batches. */
static size_t flush_class(struct part *part, unsigned class, unsigned blocks, size_t bytes) {
  size_t moved = 0;
  while (blocks > 0 && moved < bytes) {
    lock_take(&part->lock);
    struct chain chain = depot_take_oldest(part, class, blocks);
    lock_release(&part->lock);
    if (chain.count == 0) break;
    blocks -= chain.count;
    moved += chain.count * class_size(class);
    bins_return(&part->lock, chain);
  }
  return moved;
}

size_t heap_flush_depot(struct part *part, size_t most) {
  size_t moved = 0;
  if (!part_has_store(part)) return 0;
  for (unsigned class = 0; class < CLASSES && moved < most; class++)
    moved += flush_class(part, class, UINT_MAX, most - moved);
  return moved;
}

size_t heap_flush_stale(struct part *part) {
  size_t moved = 0;
  if (!part_has_store(part)) return 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    lock_take(&part->lock);
    unsigned stale = depot_stale(part, class);
    lock_release(&part->lock);
    moved += flush_class(part, class, stale, SIZE_MAX);
  }
  return moved;
}

static struct chain take_list(struct part *part, unsigned class) {
  list_settle(part, class);
  struct chain chain = list_chain(part, class);
  list_set(part, class, EMPTY_CHAIN);
  return chain;
}

void heap_flush_lists(struct part *part) {
  if (!part_has_store(part)) return;
  if (TSLAB_CHECK_LEVEL >= 2) part_check(part);
  if (TSLAB_HARDENED) quarantine_empty(part);
  heap_flush_remote(part);
  for (unsigned class = 0; class < CLASSES; class++) bins_return(&part->lock, take_list(part, class));
  heap_flush_depot(part, SIZE_MAX);
  large_cache_flush(part, true);
}

void heap_leave(struct part *part) {
  if (TSLAB_HARDENED) quarantine_empty(part);
  heap_flush_remote(part);
  sample_flush(part);
  if (!options.scavenger) heap_flush_lists(part);
}

size_t heap_flush_dead(struct part *part) {
  size_t moved = 0;
  if (!part_has_store(part)) return 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct chain chain = EMPTY_CHAIN;
    lock_take(&part->lock); /* who takes the part out of the pool takes the lock first */
    if (!part->live && !list_is_settled(part, class)) chain = take_list(part, class);
    lock_release(&part->lock);
    moved += chain.count * class_size(class);
    bins_return(&part->lock, chain);
  }
  return moved;
}

size_t heap_settle_dead(struct part *part) {
  part_begin_common();
  size_t moved = heap_flush_dead(part) + heap_flush_depot(part, SIZE_MAX) + large_cache_flush(part, true);
  bins_leave(part);
  part_settle(part);
  return moved;
}

size_t heap_trim(struct part *part, bool now) { return part_has_store(part) ? bins_trim(part, now) : 0; }

static void add_counters(struct class_totals *to, const struct bin *bin) {
  uint64_t remote = __atomic_load_n(&bin->remote_frees, __ATOMIC_RELAXED);
  to->frees += remote;
  to->remote_frees += remote;
  to->refills += __atomic_load_n(&bin->refills, __ATOMIC_RELAXED);
  to->overflows += __atomic_load_n(&bin->overflows, __ATOMIC_RELAXED);
  to->born += LOAD_RACING(bin->born);
  to->retired += LOAD_RACING(bin->retired);
}

static void add_totals(struct class_totals *to, const struct bin *bin, struct list_totals list, struct part *part) {
  to->allocations += list.allocations;
  to->frees += list.frees;
  if (part) lock_take(&part->lock);
  to->cached += LOAD_RACING(bin->depot_blocks) + list.length;
  to->slabs += LOAD_RACING(bin->slabs);
  add_counters(to, bin);
  if (part) lock_release(&part->lock);
}

void heap_totals(struct part *part, unsigned class, struct class_totals *out) {
  add_totals(out, &part->bins[class], list_totals(part, class), part);
  if (part != &common_part) return;
  lock_take(&part->lock);
  out->slabs += settled_slabs[class];
  lock_release(&part->lock);
}

void heap_epoch_totals(unsigned class, struct class_totals *out) {
  const struct bin *folded = &stores_folded.bins[class];
  out->allocations += LOAD_RACING(folded->allocations);
  out->frees += LOAD_RACING(folded->frees);
  add_counters(out, folded);
  for (struct stored *stored = stored_first(); stored; stored = stored->next)
    add_totals(out, &stored->store->bins[class], stored_totals(stored, class), stored_part(stored));
}

uint64_t heap_homeless_frees(unsigned class) {
  uint64_t frees = 0;
  for (unsigned i = 0; i < HOMELESS_COUNTERS; i++)
    frees += atomic_load_explicit(&homeless_frees[i].frees[class], memory_order_relaxed);
  return frees;
}

void part_check(struct part *part) {
  if (!part_has_store(part)) return;
  lock_take(&part->lock);
  for (unsigned class = 0; class < CLASSES; class++) {
    const struct bin *bin = &part->bins[class];
    unsigned length = 0, listed = 0, depot = 0, expected = list_length(part, class);
    void *b = part->list[class];
    for (; b != CHAIN_END && block_is_intact(b) && length < expected; b = block_next(b), length++)
      INVARIANT(0, class_starts_block((uintptr_t)b, part->inverse[class]));
    if (b != CHAIN_END) break; /* freed twice, or written to: told by who takes the list apart */
    INVARIANT(0, length == expected);
    for (uint32_t g = bin->first; g; g = pages.runs[g].next, listed++) {
      struct run *slab = &pages.runs[g];
      uint64_t word = atomic_load_explicit(&slab->word, memory_order_relaxed);
      INVARIANT(0, slab->kind == RUN_SLAB && slab->class == class && (word & SLAB_LISTED));
      INVARIANT(0, slab_count(word) <= slab_linked(word) && slab_linked(word) <= slab->capacity);
    }
    INVARIANT(0, listed == bin->listed && listed <= bin->slabs);
    for (uint16_t i = bin->newest; i; i = part->batches[i].older) depot += part->batches[i].count;
    INVARIANT(0, depot == bin->depot_blocks);
  }
  lock_release(&part->lock);
}
