/* heap: see heap.h.                                                                                 floor: heap */
#include "heap/refill.h"

#include "base/options.h"
#include "heap/bins.h"
#include "heap/cut.h"
#include "heap/magazine.h"
#include "heap/fast.h"
#include "heap/label.h"
#include "heap/large_cache.h"
#include "heap/tcache.h"
#include "heap/misuse.h"
#include "heap/sample.h"
#include "heap/store.h"
#include "slab/large.h"
#include <limits.h>

static void count_lock(const struct heap *heap, unsigned class, uint64_t waited) {
  counters_lock(heap->counters, class, waited);
  if (!heap->arena) return;
  struct label *label = &labels[heap->arena->label];
  shared_add(waited ? &label->lock_contended : &label->lock_fast, 1);
}

/* The class has let pass the mallocs that it drew: its list is detached, so that the next one comes by, or, after some
 * frees, the first that finds none of these left. Not COLD: compilers would take its callers' usual path for cold. */
static NOINLINE void arm(struct heap *heap, unsigned class, unsigned held) {
  struct bin *bin = &heap->bins[class];
  if (!options.sample) {
    bin->countdown = INT32_MAX;
    return;
  }
  while (LIKELY(bin->countdown <= 0) && bin->due < UINT8_MAX) {
    bin->countdown += sample_draw(heap);
    bin->due++;
  }
  tcache_detach(heap, class, held);
}

INLINE void arm_if_due(struct heap *heap, unsigned class, unsigned held) {
  const struct bin *bin = &heap->bins[class];
  if (profile_is_on() && cut_list(heap, class)) return; /* the list is whole when it is detached */
  if (TSLAB_TELEMETRY && UNLIKELY(bin->countdown <= 0 || bin->due)) arm(heap, class, held);
}

/* How the call was served. */
static enum path served_by(const struct heap *heap) {
  uint32_t stages = heap->counters->stages & ((1u << PATHS_OF_CLASSES) - 1);
  return stages ? (enum path)log2_floor(stages) : PATH_SLAB;
}

/* A thread of many gets slabs of its own for a class once it uses it: until then it would hold a page or more of each
 * class that it ever took a block of. docs/decisions/0031. */
#define SHARING_THREADS 16
#define SHARED_BLOCKS   64 /* taken by a thread from slabs that it shares */
#define SHARED_AT_ONCE  8
#define SHARED_BYTES    512

static bool uses_little(const struct heap *heap, unsigned class) {
  const struct bin *bin = &heap->bins[class];
  return bin->allocations < SHARED_BLOCKS && bin->slabs == 0 && !heap->arena &&
         atomic_load_explicit(&live_heaps, memory_order_relaxed) > SHARING_THREADS;
}

static struct chain take_from_slabs(struct heap *heap, unsigned class) {
  if (UNLIKELY(uses_little(heap, class)))
    return bins_take_shared(heap, class, blocks_in(class, SHARED_BYTES, SHARED_AT_ONCE));
  return bins_take(heap, class, tcache_cap(&heap->bins[class], class) / 4u);
}

void *heap_refill(struct heap *heap, unsigned class) {
  if (UNLIKELY(!heap_has_store(heap)) && !heap_make_store(heap)) return NULL;
  struct bin *bin = &heap->bins[class];
  if (heap->store->remote.count) heap_flush_remote(heap); /* a thread that frees no more must not keep them */
  count_lock(heap, class, lock_take(&heap->lock));
  tcache_fold(heap, class);
  counter_add_release(&bin->refills, 1);
  bin->drained = 0;
  if (bin->cap == 0) tcache_open(heap, class);
  if (LIKELY(heap->list[class] == CHAIN_END)) { /* else folding it brought back what was detached */
    struct chain chain = magazine_take(heap, class);
    if (bin->halvings) bin->halvings = 0;
    else if (chain.count > 0) tcache_grow(heap, class, true); /* the list was too short for it */
    if (chain.count == 0) chain = take_from_slabs(heap, class);
    else counters_stage(heap->counters, PATH_MAGAZINE);
    tcache_set(heap, class, chain);
  }
  lock_release(&heap->lock);
  bool has_some = block_is_intact(heap->list[class]);
  if (TSLAB_HARDENED && !has_some && quarantine_of(heap, class)) { /* rather than none */
    quarantine_empty(heap);
    has_some = block_is_intact(heap->list[class]);
  }
  if (!has_some) return NULL;
  /* Before the list counts it: who looks in between must not take it for one that the list served. */
  counter_add(&heap->counters->refills[class].served[served_by(heap)], 1);
  FENCE_STORES();
  void *const block = fast_pop(heap, class, (uintptr_t)pages.base);
  if (bin->countdown < INT32_MAX) bin->countdown++; /* it is none of those that are drawn from */
  arm_if_due(heap, class, 0);
  return block;
}

void *heap_take_bad_list(struct heap *heap, unsigned class) {
  void **block = heap->list[class];
  if (LIKELY(block == CHAIN_END)) return NULL;
  heap->list[class] = CHAIN_END;
  tcache_fold(heap, class);
  if (heap->list[class] == CHAIN_END) tcache_set(heap, class, EMPTY_CHAIN); /* else it is what was detached */
  return block;
}

/* Of the batch of remote frees, without the locks that its way to the slabs takes. The hardened build looked at each
 * free. */
static void *find_double_remote(struct heap *heap) {
  if (!heap_has_store(heap)) return NULL;
  void *found = NULL;
  unsigned seen = 0;
  for (; !TSLAB_HARDENED && !found && seen < heap->store->remote.count; seen++) {
    void *block = heap->store->remote_blocks[seen];
    const struct run *run = pages_run_of(block);
    if (!run || run->kind != RUN_SLAB) break; /* a second free has ended its slab, and nothing can be said of it */
    if (slab_refuses(block)) found = block;
    block_mark_free(block);
  }
  for (unsigned i = 0; i < seen; i++) block_mark(heap->store->remote_blocks[i], 0);
  return found;
}

void *heap_find_double(struct heap *heap) {
  if (heap->sampling.detached) tcache_rejoin(heap);
  if (profile_is_on() && heap_has_store(heap))
    for (unsigned class = 0; class < CLASSES; class++) cut_settle(heap, class);
  if (TSLAB_HARDENED) quarantine_empty(heap);
  void *remote = find_double_remote(heap);
  if (remote) return remote;
  for (unsigned class = 0; class < CLASSES; class++) {
    unsigned length = tcache_length(heap, class);
    void *found = NULL;
    unsigned seen = 0;
    for (void *b = heap->list[class]; b != CHAIN_END && seen < length; b = block_next(b), seen++) {
      if (!block_is_intact(b)) {
        found = b;
        break;
      }
      block_mark_met(b);
    }
    void *b = heap->list[class];
    for (unsigned i = 0; i < seen; i++, b = block_next(b)) block_mark_free(b);
    if (found) return found;
  }
  return NULL;
}

void heap_tell_double(struct heap *heap) {
  void *twice = find_double_remote(heap);
  if (twice) block_mark_free(twice); /* the line that tells it looks for the mark */
  else twice = heap_find_double(heap);
  if (twice) misuse_freed(twice);
}

/* A thread that goes on freeing does not want the blocks of its magazines soon, and each block keeps a slab from being
 * free as a whole. So the thread begins to empty them when as many blocks went past them as they hold. */
static bool passes_magazines(const struct bin *bin) {
  return bin->drained > 0 && bin->drained >= LOAD_RACING(bin->magazine_blocks);
}

/* Moves the class's list out of the way. Returns what must go to the slabs, for which the magazines had no room: this
 * list and not an older one, whose blocks the processor no longer has at hand. */
static struct chain put_by(struct heap *heap, unsigned class, bool draining) {
  struct bin *bin = &heap->bins[class];
  struct chain chain = tcache_chain(heap, class);
  if (draining && (passes_magazines(bin) || magazines_are_full(heap, class, chain.count))) { /* nothing to lock for */
    tcache_shrink(heap, class);
    tcache_set(heap, class, EMPTY_CHAIN);
    return chain;
  }
  count_lock(heap, class, lock_take(&heap->lock));
  if (!draining) bin->drained = 0;
  if (bin->cap == 0) tcache_open(heap, class);
  else if (draining) tcache_shrink(heap, class);
  else tcache_grow(heap, class, true);
  /* What is freed next waits in quarantine, so the next malloc would have all of it back, and the list grow on. */
  bool comes_back = TSLAB_HARDENED && chain.count > tcache_cap(bin, class);
  if (chain.count > 0 && !comes_back && magazine_put(heap, class, chain)) chain = EMPTY_CHAIN;
  tcache_set(heap, class, EMPTY_CHAIN);
  lock_release(&heap->lock);
  return chain;
}

/* A draining thread returns this many blocks of the magazines with each of its lists: few, so that no single free pays
 * for a whole batch (docs/decisions/0040). */
#define PASSED_ON 8

static struct chain with_some_of_magazines(struct heap *heap, unsigned class, struct chain chain) {
  struct chain astray = EMPTY_CHAIN;
  count_lock(heap, class, lock_take(&heap->lock));
  chain = magazine_take_some(heap, class, PASSED_ON, chain, &astray);
  lock_release(&heap->lock);
  bins_return(&heap->lock, astray);
  return chain;
}

/* Apart, so that the usual visit, which only counts, need not save what this one does. */
static NOINLINE void empty_list(struct heap *heap, unsigned class, bool draining) {
  struct bin *bin = &heap->bins[class];
  struct chain to_slabs = put_by(heap, class, draining);
  if (draining) bin->drained += to_slabs.count;
  if (draining && passes_magazines(bin) && LOAD_RACING(bin->magazine_blocks) > 0)
    to_slabs = with_some_of_magazines(heap, class, to_slabs);
  bins_return(&heap->lock, to_slabs);
}

/* Frees in a row that come to visit because a list that is detached is held; then no malloc is to be expected soon. */
#define HELD_MOST 32

bool heap_overflow(struct heap *heap, unsigned class, void *block) {
  struct bin *bin = &heap->bins[class];
  /* The fast path counted a free that it then did not make. */
  STORE_RACING(heap->count[class].now, heap->count[class].now + ROOM_ONE - 1);
  /* Then its room was cut, and that this was used up says nothing; how long the list is does. */
  bool was_detached = heap->sampling.detached && heap->sampling.class == class;
  unsigned mallocs = tcache_fold(heap, class), held = 0;
  if (was_detached && mallocs == 0) held = heap->sampling.held % HELD_MOST;
  counter_add_release(&bin->overflows, 1);
  struct chain chain = tcache_chain(heap, class);
  /* Mostly the frees between two visits were balanced by mallocs, and the list is nowhere near full. */
  unsigned cap = tcache_cap(bin, class), most = was_detached ? cap : cap - cap / 4u;
  bool has_room = (was_detached || mallocs > 0) && chain.count <= most;
  if (has_room) {
    if (!was_detached) tcache_grow(heap, class, false);
    tcache_set(heap, class, chain);
  } else {
    empty_list(heap, class, mallocs == 0 && !was_detached);
  }
  STORE_RACING(heap->count[class].now, heap->count[class].now - (ROOM_ONE - 1));
  if (TSLAB_HARDENED) {
    quarantine_enter(heap, class, block);
  } else {
    block_mark_free(block);
    block_link(block, heap->list[class]);
    heap->list[class] = block;
  }
  if (mallocs > 0 || held) arm_if_due(heap, class, was_detached ? held + 1 : 0);
  else if (profile_is_on()) cut_list(heap, class);
  return !has_room;
}

/* Frees by threads without a heap: the first few of a thread, and those after its death. Many threads may end at the
 * same moment, so each adds to the counters that its thread-local storage's address picks. */
#define UNOWNED_COUNTERS 16
static struct unowned {
  _Atomic uint64_t frees[CLASSES] ALIGNED(CACHE_LINE);
} unowned_frees[UNOWNED_COUNTERS];

static unsigned unowned_index(void) {
  uint32_t page = (uint32_t)((uintptr_t)&current_heap >> 12); /* no two threads' storage is closer */
  return page * UINT32_C(2654435769) >> 28;                    /* the golden ratio's: spreads equal distances */
}
_Static_assert(UNOWNED_COUNTERS == 1 << (32 - 28), "the index has four bits");

void heap_push_remote(struct heap *heap, unsigned class, void *block) {
  struct remote *remote = &heap->store->remote;
  store_add_remote(heap->store, block);
  remote->room -= (int32_t)max_size(class_size(class), REMOTE_LEAST);
  if (remote->room > 0) return;
  struct timing timing;
  sample_begin_path(&timing);
  heap_flush_remote(heap);
  sample_end_path(&timing, PATH_FLUSH);
}

static void free_at_once(struct lock *gate, void *block) {
  block_mark_free(block);
  block_link(block, CHAIN_END);
  bins_return(gate, (struct chain){block, 1});
}

/* Counts first: a fork child that has the count and not the push takes the block for lost, and counts it as leaked. */
static void free_unowned(struct run *slab, void *block) {
  shared_add(&unowned_frees[unowned_index()].frees[slab->class], 1);
  free_at_once(NULL, block);
}

void heap_free_remote(struct heap *heap, struct run *slab, void *block) {
  if (UNLIKELY(heap == &empty_heap)) {
    free_unowned(slab, block);
    return;
  }
  counter_add_release(&heap->bins[slab->class].remote_frees, 1);
  if (slab->epoch != 0) free_at_once(&heap->lock, block); /* an epoch's end must not wait for company */
  else if (TSLAB_HARDENED) quarantine_enter_remote(heap, slab->class, block);
  else heap_push_remote(heap, slab->class, block);
}

void heap_flush_remote(struct heap *heap) {
  struct remote *remote = &heap->store->remote;
  unsigned count = remote->count;
  if (count == 0) return;
  remote->count = 0;
  remote->room = REMOTE_BYTES;
  bins_return_batch(heap, heap->store->remote_blocks, count);
}

/* ---- large blocks ------------------------------------------------------------------------------------------------ */

void *heap_large_alloc(struct heap *heap, size_t size, size_t alignment, bool *zero) {
  struct arena *arena = heap->arena;
  size_t bytes = large_run_bytes(size);
  struct pages_how how = {0};
  counters_stage(heap->counters, PATH_LARGE);
  struct run *again = arena || alignment > GRANULE ? NULL : large_cache_take(heap, large_granules(size));
  if (again) {
    *zero = false;
    return large_again(again, size, &heap->counters->large);
  }
  if (arena && !arena_charge(arena, bytes)) return NULL;
  void *block = large_alloc(size, alignment, zero, &how, &heap->counters->large);
  counters_wait(heap->counters, how.waited);
  if (!arena) return block;
  if (!block) {
    arena_discharge(arena, bytes);
    return NULL;
  }
  struct run *run = pages.runs + granule_of(block);
  run->epoch = arena->index;
  arena_add(arena, run);
  atomic_fetch_add_explicit(&arena->large, 1, memory_order_relaxed);
  return block;
}

bool heap_large_keep(struct heap *heap, struct run *run) {
  if (run->epoch != 0 || heap == &empty_heap || !large_cache_has_room(heap, run)) return false;
  large_retire(run, &counters_here()->large);
  large_cache_put(heap, run);
  return true;
}

void heap_large_free(struct heap *heap, struct run *run) {
  large_retire(run, &counters_here()->large);
  if (run->epoch != 0) arena_release(arena_at(run->epoch), run, false);
  else if (heap != &empty_heap && large_cache_make_room(heap, run)) large_cache_put(heap, run);
  else pages_free(run, false);
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

struct leaked leaked;

void heap_retire_others(void) {
  heaps_retire_others();
  bins_after_fork();
}

/* This thread's, which wait to go to their slabs. */
static void count_remote(uint64_t count[CLASSES]) {
  if (!current_thread) return;
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active) {
    for (unsigned i = 0; i < p->store->remote.count; i++) {
      const struct run *run = pages_run_of(p->store->remote_blocks[i]);
      if (run && run->kind == RUN_SLAB) count[run->class]++; /* else freed twice */
    }
    if (TSLAB_HARDENED) quarantine_count_remote(p, count);
  }
}

/* What slabs hand out is live, or on a list or in a magazine that somebody has, or lost. */
void heap_count_leaked(void) {
  uint64_t used[CLASSES] = {0}, had[CLASSES] = {0};
  bins_count_used(used);
  count_remote(had);
  leaked.blocks = leaked.bytes = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct class_totals totals = {0};
    for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active)
      heap_totals(p, class, &totals);
    heap_epoch_totals(class, &totals);
    had[class] += totals.allocations - totals.frees - unowned_frees_of(class) + totals.cached;
    if (used[class] <= had[class]) continue;
    leaked.blocks += used[class] - had[class];
    leaked.bytes += (used[class] - had[class]) * class_size(class);
  }
}

void heap_freeze(bool knows_its_thread) {
  heaps_freeze(knows_its_thread);
  leaked.frozen = pages_freeze();
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* At most so many blocks, and about so many bytes; whole magazines. */
static size_t flush_class(struct heap *heap, unsigned class, unsigned blocks, size_t bytes) {
  size_t moved = 0;
  while (blocks > 0 && moved < bytes) {
    lock_take(&heap->lock);
    struct chain chain = magazine_take_oldest(heap, class, blocks);
    lock_release(&heap->lock);
    if (chain.count == 0) break;
    blocks -= chain.count;
    moved += chain.count * class_size(class);
    bins_return(&heap->lock, chain);
  }
  return moved;
}

size_t heap_flush_magazines(struct heap *heap, size_t most) {
  size_t moved = 0;
  if (!heap_has_store(heap)) return 0;
  for (unsigned class = 0; class < CLASSES && moved < most; class++)
    moved += flush_class(heap, class, UINT_MAX, most - moved);
  return moved;
}

size_t heap_flush_stale(struct heap *heap) {
  size_t moved = 0;
  if (!heap_has_store(heap)) return 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    lock_take(&heap->lock);
    unsigned stale = magazines_stale(heap, class);
    lock_release(&heap->lock);
    moved += flush_class(heap, class, stale, SIZE_MAX);
  }
  return moved;
}

static struct chain take_tcache(struct heap *heap, unsigned class) {
  tcache_fold(heap, class);
  struct chain chain = tcache_chain(heap, class);
  tcache_set(heap, class, EMPTY_CHAIN);
  if (profile_is_on()) cut_list(heap, class);
  return chain;
}

void heap_flush_lists(struct heap *heap) {
  if (!heap_has_store(heap)) return;
  if (TSLAB_CHECK_LEVEL >= 2) heap_check(heap);
  if (TSLAB_HARDENED) quarantine_empty(heap);
  heap_flush_remote(heap);
  for (unsigned class = 0; class < CLASSES; class++) bins_return(&heap->lock, take_tcache(heap, class));
  heap_flush_magazines(heap, SIZE_MAX);
  large_cache_flush(heap, true);
}

void heap_leave(struct heap *heap) {
  if (TSLAB_HARDENED) quarantine_empty(heap);
  heap_flush_remote(heap);
  sample_flush(heap);
  if (!options.scavenger) heap_flush_lists(heap);
}

size_t heap_flush_dead(struct heap *heap) {
  size_t moved = 0;
  if (!heap_has_store(heap)) return 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct chain chain = EMPTY_CHAIN;
    lock_take(&heap->lock); /* who takes the heap out of the pool takes the lock first */
    if (!heap->live && !tcache_is_folded(heap, class)) chain = take_tcache(heap, class);
    lock_release(&heap->lock);
    moved += chain.count * class_size(class);
    bins_return(&heap->lock, chain);
  }
  return moved;
}

size_t heaps_fold_dead(struct heap *heap) {
  heap_begin_common();
  size_t moved = heap_flush_dead(heap) + heap_flush_magazines(heap, SIZE_MAX) + large_cache_flush(heap, true);
  bins_leave(heap);
  heap_fold(heap);
  return moved;
}

size_t heap_trim(struct heap *heap, bool now) { return heap_has_store(heap) ? bins_trim(heap, now) : 0; }

static void add_counters(struct class_totals *to, const struct bin *bin) {
  uint64_t remote = __atomic_load_n(&bin->remote_frees, __ATOMIC_RELAXED);
  to->frees += remote;
  to->remote_frees += remote;
  to->refills += __atomic_load_n(&bin->refills, __ATOMIC_RELAXED);
  to->overflows += __atomic_load_n(&bin->overflows, __ATOMIC_RELAXED);
  to->born += LOAD_RACING(bin->born);
  to->retired += LOAD_RACING(bin->retired);
}

static void add_totals(struct class_totals *to, const struct bin *bin, struct tcache_totals list, struct heap *heap) {
  to->allocations += list.allocations;
  to->frees += list.frees;
  if (heap) lock_take(&heap->lock);
  to->cached += LOAD_RACING(bin->magazine_blocks) + list.length;
  to->slabs += LOAD_RACING(bin->slabs);
  add_counters(to, bin);
  if (heap) lock_release(&heap->lock);
}

void heap_totals(struct heap *heap, unsigned class, struct class_totals *out) {
  add_totals(out, &heap->bins[class], tcache_totals(heap, class), heap);
  if (heap != &common_heap) return;
  lock_take(&heap->lock);
  out->slabs += folded_slabs[class];
  lock_release(&heap->lock);
}

void heap_epoch_totals(unsigned class, struct class_totals *out) {
  const struct bin *folded = &stores_folded.bins[class];
  out->allocations += LOAD_RACING(folded->allocations);
  out->frees += LOAD_RACING(folded->frees);
  add_counters(out, folded);
  for (struct stored *stored = stored_first(); stored; stored = stored->next)
    add_totals(out, &stored->store->bins[class], stored_totals(stored, class), stored_heap(stored));
}

uint64_t unowned_frees_of(unsigned class) {
  uint64_t frees = 0;
  for (unsigned i = 0; i < UNOWNED_COUNTERS; i++)
    frees += atomic_load_explicit(&unowned_frees[i].frees[class], memory_order_relaxed);
  return frees;
}

void heap_check(struct heap *heap) {
  if (!heap_has_store(heap)) return;
  lock_take(&heap->lock);
  for (unsigned class = 0; class < CLASSES; class++) {
    const struct bin *bin = &heap->bins[class];
    unsigned length = 0, listed = 0, magazine = 0, expected = tcache_length(heap, class);
    void *b = heap->list[class];
    for (; (block_is_intact(b) || block_is_drawn(b)) && length < expected; b = block_next(b), length++)
      INVARIANT(0, class_starts_block((uintptr_t)b, heap->inverse[class]));
    if (b != CHAIN_END) break; /* freed twice, or written to: told by who takes the list apart */
    INVARIANT(0, length == expected);
    for (uint32_t g = bin->first; g; g = pages.runs[g].next, listed++) {
      struct run *slab = &pages.runs[g];
      uint64_t word = atomic_load_explicit(&slab->word, memory_order_relaxed);
      INVARIANT(0, slab->kind == RUN_SLAB && slab->class == class && (word & SLAB_LISTED));
      INVARIANT(0, slab_count(word) <= slab_linked(word) && slab_linked(word) <= slab->capacity);
    }
    INVARIANT(0, listed == bin->listed && listed <= bin->slabs);
    for (uint16_t i = bin->newest; i; i = heap->magazines[i].older) magazine += heap->magazines[i].count;
    INVARIANT(0, magazine == bin->magazine_blocks);
  }
  lock_release(&heap->lock);
}
