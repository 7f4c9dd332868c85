/* refill: see refill.h.                                                                             floor: heap */
#include "heap/refill.h"

#include "base/options.h"
#include "heap/arena.h"
#include "heap/bins.h"
#include "heap/cut.h"
#include "heap/draw.h"
#include "heap/fast.h"
#include "heap/label.h"
#include "heap/magazine.h"
#include "heap/profile.h"
#include "heap/quarantine.h"
#include "heap/registry.h"
#include "heap/remote.h"
#include "heap/tcache.h"
#include "heap/timing.h"

static void count_lock(const struct heap *heap, unsigned class, uint64_t waited) {
  counters_lock(heap->counters, class, waited);
  if (!heap->arena) return;
  struct label *label = &labels[heap->arena->label];
  shared_add(waited ? &label->lock_contended : &label->lock_fast, 1);
}

/* The class has let the mallocs pass that it drew. This detaches its list, so that a slow path gets the next malloc,
 * or, after some frees, the first malloc that finds none of their blocks left. It is not COLD, because compilers would
 * take its callers' usual path for cold. */
static NOINLINE void arm(struct heap *heap, unsigned class, unsigned held) {
  struct bin *bin = &heap->bins[class];
  if (!options.sample) {
    bin->countdown = INT32_MAX;
    return;
  }
  while (LIKELY(bin->countdown <= 0) && bin->due < UINT8_MAX) {
    bin->countdown += draw_mallocs(heap);
    bin->due++;
  }
  tcache_detach(heap, class, held);
}

INLINE void arm_if_due(struct heap *heap, unsigned class, unsigned held) {
  const struct bin *bin = &heap->bins[class];
  if (profile_is_on() && cut_list(heap, class)) return; /* a detached list is whole, so a cut one is not detached */
  if (TSLAB_TELEMETRY && UNLIKELY(bin->countdown <= 0 || bin->due)) arm(heap, class, held);
}

/* Returns the path that served the call. */
static enum path served_by(const struct heap *heap) {
  uint32_t stages = heap->counters->stages & ((1u << PATHS_OF_CLASSES) - 1);
  return stages ? (enum path)log2_floor(stages) : PATH_SLAB;
}

/* In a process of many threads a thread gets slabs of its own for a class only once it uses the class. Otherwise it
 * would hold a page or more of each class of which it ever took a block: docs/decisions/0031. */
#define SHARING_THREADS 16
#define SHARED_BLOCKS   64 /* blocks that a thread takes from shared slabs */
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
  return bins_take(heap, class, tcache_cap(heap, class) / 4u);
}

void *heap_refill(struct heap *heap, unsigned class) {
  if (UNLIKELY(!heap_has_store(heap)) && !heap_make_store(heap)) return NULL;
  struct bin *bin = &heap->bins[class];
  if (heap->store->remote.count) heap_flush_remote(heap); /* a thread that stops freeing must not keep them */
  count_lock(heap, class, lock_take(&heap->lock));
  tcache_fold(heap, class);
  counter_add_release(&bin->refills, 1);
  bin->drained = 0; /* the thread allocates in the class again */
  if (bin->cap == 0) tcache_open(heap, class);
  if (LIKELY(heap->list[class] == CHAIN_END)) { /* otherwise the fold brought a detached list back */
    struct chain chain = magazine_take(heap, class);
    if (bin->halvings) bin->halvings = 0;
    else if (chain.count > 0) tcache_grow(heap, class, true); /* the list was too short for these blocks */
    if (chain.count == 0) chain = take_from_slabs(heap, class);
    else counters_stage(heap->counters, PATH_MAGAZINE);
    tcache_set(heap, class, chain);
  }
  lock_release(&heap->lock);
  bool has_some = block_is_intact(heap->list[class]);
  if (TSLAB_HARDENED && !has_some && quarantine_of(heap, class)) { /* waiting blocks are better than none */
    quarantine_empty(heap);
    has_some = block_is_intact(heap->list[class]);
  }
  if (!has_some) return NULL;
  /* Counted before the list counts it, so that no reader takes it for a call that the list served. */
  counter_add(&heap->counters->refills[class].served[served_by(heap)], 1);
  FENCE_STORES();
  void *const block = fast_pop(heap, class, pages.key);
  if (bin->countdown < INT32_MAX) bin->countdown++; /* this call is not among those that the class draws from */
  arm_if_due(heap, class, 0);
  return block;
}

void *heap_take_bad_list(struct heap *heap, unsigned class) {
  void **block = heap->list[class];
  if (LIKELY(block == CHAIN_END)) return NULL;
  heap->list[class] = CHAIN_END;
  tcache_fold(heap, class);
  if (heap->list[class] == CHAIN_END) tcache_set(heap, class, EMPTY_CHAIN); /* else it was detached */
  return block;
}

/* A thread that goes on freeing does not need the blocks of its magazines soon, and each block keeps a slab from being
 * empty. So the thread begins to empty the magazines once as many blocks passed them as they hold. */
static bool passes_magazines(const struct bin *bin) {
  return bin->drained > 0 && bin->drained >= LOAD_RACING(bin->magazine_blocks);
}

/* Magazines hand blocks out in the reverse order of their frees, and a slab that was empty in the order of addresses,
 * which a processor fetches ahead. So the short lists of a draining thread go to the slabs once the class's magazines
 * hold as much as a long list: docs/decisions/0088. */
static bool has_enough_kept(const struct bin *bin, unsigned class, unsigned count) {
  bool is_short = count <= tcache_drained_cap(class, (int64_t)(bin->allocations - bin->frees));
  return is_short && LOAD_RACING(bin->magazine_blocks) >= tcache_longest(class);
}

/* Returns true if a draining thread's list of `count` blocks goes to the slabs. This needs no lock. */
static bool goes_to_slabs(const struct heap *heap, unsigned class, unsigned count) {
  const struct bin *bin = &heap->bins[class];
  return passes_magazines(bin) || has_enough_kept(bin, class, count) || magazines_are_full(heap, class, count);
}

/* Moves the class's list to the magazines. If they have no room or hold enough, it returns the list, which must go to
 * the slabs: this list and not an older one, because its blocks are still in the processor's cache. */
static struct chain list_to_magazines(struct heap *heap, unsigned class, bool draining) {
  struct bin *bin = &heap->bins[class];
  struct chain chain = tcache_lift(heap, class);
  pages_note_freed(chain.count * (class_size(class) + os_page_size));
  if (draining && goes_to_slabs(heap, class, chain.count)) {
    tcache_shrink(heap, class);
    tcache_set(heap, class, EMPTY_CHAIN);
    return chain;
  }
  count_lock(heap, class, lock_take(&heap->lock));
  if (!draining) bin->drained = 0;
  if (bin->cap == 0) tcache_open(heap, class);
  else if (draining) tcache_shrink(heap, class);
  else tcache_grow(heap, class, true);
  /* The next frees wait in quarantine. So the next malloc would take the whole list back, and the list would go on
   * growing. */
  bool comes_back = TSLAB_HARDENED && chain.count > tcache_cap(heap, class);
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

/* A function of its own, so that the usual visit, which only counts, saves fewer registers. */
static NOINLINE void empty_list(struct heap *heap, unsigned class, bool draining) {
  struct bin *bin = &heap->bins[class];
  struct chain to_slabs = list_to_magazines(heap, class, draining);
  if (draining) bin->drained += to_slabs.count;
  if (draining && passes_magazines(bin) && LOAD_RACING(bin->magazine_blocks) > 0)
    to_slabs = with_some_of_magazines(heap, class, to_slabs);
  bins_return(&heap->lock, to_slabs);
}

/* After so many frees in a row that visit because a detached list is held, no malloc is likely soon. */
#define HELD_MOST 32

INLINE void put_on_list(struct heap *heap, unsigned class, void *block) {
  if (TSLAB_HARDENED) {
    quarantine_enter(heap, class, block);
    return;
  }
  block_mark_free(block);
  block_link(block, heap->list[class]);
  heap->list[class] = block;
}

bool heap_overflow(struct heap *heap, unsigned class, void *block) {
  struct bin *bin = &heap->bins[class];
  /* The fast path counted a free that it did not make. */
  STORE_RACING(heap->count[class].now, heap->count[class].now + ROOM_ONE - 1);
  /* A detached list has less room, so its use says nothing; the length of the list does. */
  bool was_detached = tcache_is_detached(heap, class);
  unsigned mallocs = tcache_fold(heap, class), held = 0;
  if (was_detached && mallocs == 0) held = heap->sampling.held % HELD_MOST;
  counter_add_release(&bin->overflows, 1);
  struct chain chain = tcache_chain(heap, class);
  /* Most times mallocs balanced the frees between two visits, and the list is far from full. */
  unsigned cap = tcache_cap(heap, class), most = was_detached ? cap : cap - cap / 4u;
  bool has_room = (was_detached || mallocs > 0) && chain.count <= most;
  if (has_room) {
    if (!was_detached) tcache_grow(heap, class, false);
    tcache_set(heap, class, chain);
  } else {
    empty_list(heap, class, mallocs == 0 && !was_detached);
  }
  STORE_RACING(heap->count[class].now, heap->count[class].now - (ROOM_ONE - 1));
  put_on_list(heap, class, block);
  if (mallocs > 0 || held) arm_if_due(heap, class, was_detached ? held + 1 : 0);
  else if (profile_is_on()) cut_list(heap, class);
  return !has_room;
}

void heap_pass_cut(struct heap *heap, unsigned class, void *block) {
  cut_begin_pass(heap, class);
  put_on_list(heap, class, block);
  cut_end_pass(heap, class);
}

void heap_free_remote(struct heap *heap, struct run *slab, void *block) {
  if (UNLIKELY(heap == &empty_heap)) {
    remote_free_unowned(slab, block);
    return;
  }
  counter_add_release(&heap->bins[slab->class].remote_frees, 1);
  if (slab->epoch != 0) remote_free_at_once(&heap->lock, block); /* an epoch's end must not wait for company */
  else if (TSLAB_HARDENED) quarantine_enter_remote(heap, slab->class, block);
  else heap_push_remote(heap, slab->class, block);
}
