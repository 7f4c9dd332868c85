/* heap: see heap.h.                                                                                  floor: heap */
#include "heap/heap.h"

#include "heap/bins.h"
#include "heap/depot.h"
#include "heap/fast.h"

/* A quarter of the cap stays open even on a long list, so that no pattern of calls visits every time. */
static unsigned room_for(const struct bin *bin, unsigned length) {
  unsigned least = bin->cap / 4u + 1;
  return bin->cap > length + least ? bin->cap - length : least;
}

/* Adds what happened since the last visit to the totals; returns how many of it were mallocs. */
static unsigned settle_counts(struct part *part, unsigned class) {
  struct count *count = &part->count[class];
  unsigned frees = count_room(count->then) - count_room(count->now);
  unsigned mallocs = count_length(count->then) + frees - count_length(count->now);
  part->bins[class].frees += frees;
  part->bins[class].allocations += mallocs;
  count->then = count->now;
  part->visits++;
  return mallocs;
}

static void set_list(struct part *part, unsigned class, struct chain chain) {
  part->list[class] = chain.head;
  uint32_t count = count_of(room_for(&part->bins[class], chain.count), chain.count);
  part->count[class] = (struct count){count, count};
}

/* Blocks of the class in `bytes`, at least one and at most `most`. */
static unsigned blocks_in(unsigned class, size_t bytes, unsigned most) {
  return (unsigned)min_size(max_size(bytes / class_size(class), 1), most);
}

static void set_cap(struct part *part, unsigned class, unsigned cap) {
  struct bin *bin = &part->bins[class];
  part->granted_bytes += (cap - (size_t)bin->cap) * class_size(class);
  bin->cap = (uint16_t)cap;
}

/* Halves the caps of other classes, each in its turn, until `bytes` more can be granted; a list that is too long then goes to
 * the depot. False when the others have nothing to give. */
static bool make_grant(struct part *part, unsigned class, size_t bytes) {
  for (unsigned i = 0; i < CLASSES && part->granted_bytes + bytes > GRANTED_MOST; i++) {
    unsigned victim = part->victim = (part->victim + 1) % CLASSES;
    unsigned cap = part->bins[victim].cap / 2u;
    if (victim == class || cap < blocks_in(victim, LIST_FIRST_BYTES, LIST_FIRST)) continue;
    settle_counts(part, victim);
    struct chain chain = {part->list[victim], count_length(part->count[victim].now)};
    if (chain.count > cap && !depot_put(part, victim, chain)) continue;
    set_cap(part, victim, cap);
    set_list(part, victim, chain.count > cap ? (struct chain){NULL, 0} : chain);
  }
  return part->granted_bytes + bytes <= GRANTED_MOST;
}

static void adapt_cap(struct part *part, unsigned class, unsigned mallocs) {
  unsigned cap = part->bins[class].cap;
  if (cap == 0) {
    set_cap(part, class, blocks_in(class, LIST_FIRST_BYTES, LIST_FIRST));
  } else if (mallocs == 0) {
    unsigned drained = blocks_in(class, LIST_DRAIN_BYTES, LIST_DRAIN);
    if (cap > drained) set_cap(part, class, (unsigned)max_size(cap / 2, drained));
  } else {
    unsigned more = (unsigned)min_size(cap * 2, blocks_in(class, LIST_FULL_BYTES, LIST_MOST));
    if (more > cap && make_grant(part, class, (more - cap) * class_size(class))) set_cap(part, class, more);
  }
}

void *heap_refill(struct part *part, unsigned class) {
  struct bin *bin = &part->bins[class];
  lock_take(&part->lock);
  settle_counts(part, class);
  bin->refills++;
  if (bin->cap == 0) adapt_cap(part, class, 0);
  struct chain chain = depot_take(part, class);
  if (chain.count == 0) chain = bins_take(part, class, bin->cap / 4u);
  set_list(part, class, chain);
  lock_release(&part->lock);
  return fast_pop(part, class, (uintptr_t)pages.base);
}

void *heap_take_bad_list(struct part *part, unsigned class) {
  void **block = part->list[class];
  if (LIKELY(!block)) return NULL;
  lock_take(&part->lock);
  settle_counts(part, class);
  set_list(part, class, (struct chain){NULL, 0});
  lock_release(&part->lock);
  block[1] = (void *)((uintptr_t)block[1] + block_key(block)); /* the fast path took the key from what stands there */
  return block;
}

void *heap_find_double(struct part *part) {
  for (unsigned class = 0; class < CLASSES; class++) {
    unsigned length = count_length(part->count[class].now);
    void **found = NULL;
    unsigned seen = 0;
    for (void **b = part->list[class]; b && seen < length && !found; b = b[0], seen++) {
      if (!block_is_free(b)) found = b;
      else b[1] = (void *)(block_key(b) + 1);
    }
    void **b = part->list[class];
    for (unsigned i = 0; i < seen && b; i++, b = b[0]) block_mark_free(b);
    if (found) return found;
  }
  return NULL;
}

/* Batches that found no room in the depot, on their way to the slabs. Eight at a time: a visit that long is rare, and the
 * cost of a block stays the same. */
#define EVICTED 8

static unsigned evict(struct part *part, unsigned class, struct chain *out) {
  unsigned count = 0;
  for (; count < EVICTED; count++) {
    unsigned from = class;
    out[count] = depot_take_oldest(part, &from);
    if (out[count].count == 0) break;
  }
  return count;
}

void heap_overflow(struct part *part, unsigned class, void *block) {
  struct bin *bin = &part->bins[class];
  struct chain evicted[EVICTED + 1];
  unsigned count = 0;
  lock_take(&part->lock);
  part->count[class].now += ROOM_ONE - 1; /* the fast path counted a free that it then did not make */
  unsigned mallocs = settle_counts(part, class);
  bin->overflows++;
  adapt_cap(part, class, mallocs);
  struct chain chain = {part->list[class], count_length(part->count[class].now)};
  if (chain.count > bin->cap - bin->cap / 4u) {
    if (!depot_put(part, class, chain)) {
      count = evict(part, class, evicted);
      if (!depot_put(part, class, chain)) evicted[count++] = chain;
    }
    chain = (struct chain){NULL, 0};
  }
  set_list(part, class, chain);
  lock_release(&part->lock);
  block_mark_free(block);
  block_words(block)[0] = part->list[class];
  part->list[class] = block;
  part->count[class].now -= ROOM_ONE - 1;
  for (unsigned i = 0; i < count; i++) bins_return(evicted[i]);
}

/* Frees by threads without a part: after their part's end, or before their first malloc. */
static _Atomic uint64_t homeless_frees[CLASSES];

void heap_free_remote(struct part *part, struct run *slab, void *block) {
  if (part == &empty_part) {
    atomic_fetch_add_explicit(&homeless_frees[slab->class], 1, memory_order_relaxed);
  } else {
    uint64_t *n = &part->bins[slab->class].remote_frees; /* this thread's alone to write */
    __atomic_store_n(n, *n + 1, __ATOMIC_RELAXED);
  }
  block_mark_free(block);
  if (slab_push(slab, block, block, 1)) bins_settle(slab);
}

size_t heap_flush_depot(struct part *part, size_t most) {
  size_t moved = 0;
  for (unsigned class = 0; moved < most;) {
    lock_take(&part->lock);
    struct chain chain = depot_take_oldest(part, &class);
    lock_release(&part->lock);
    if (chain.count == 0) break;
    moved += chain.count * class_size(class);
    bins_return(chain);
  }
  return moved;
}

void heap_flush_lists(struct part *part) {
  if (TSLAB_CHECK_LEVEL >= 2) part_check(part);
  for (unsigned class = 0; class < CLASSES; class++) {
    lock_take(&part->lock);
    settle_counts(part, class);
    struct chain chain = {part->list[class], count_length(part->count[class].now)};
    part->list[class] = NULL;
    part->count[class] = (struct count){0, 0}; /* no room: the next free visits */
    lock_release(&part->lock);
    bins_return(chain);
  }
  heap_flush_depot(part, SIZE_MAX);
}

size_t heap_trim(struct part *part, bool now) { return bins_trim(part, now); }

void heap_totals(struct part *part, unsigned class, struct class_totals *out) {
  lock_take(&part->lock);
  const struct bin *bin = &part->bins[class];
  const struct count *count = &part->count[class];
  uint32_t now = __atomic_load_n(&count->now, __ATOMIC_RELAXED);
  unsigned frees = count_room(count->then) - count_room(now);
  out->allocations += bin->allocations + (count_length(count->then) + frees - count_length(now));
  uint64_t remote = __atomic_load_n(&bin->remote_frees, __ATOMIC_RELAXED);
  out->frees += bin->frees + frees + remote;
  out->remote_frees += remote;
  out->refills += bin->refills;
  out->overflows += bin->overflows;
  out->cached += bin->depot_blocks + count_length(now);
  out->slabs += bin->slabs;
  out->born += bin->born;
  out->retired += bin->retired;
  lock_release(&part->lock);
}

uint64_t heap_homeless_frees(unsigned class) {
  return atomic_load_explicit(&homeless_frees[class], memory_order_relaxed);
}

void part_check(struct part *part) {
  lock_take(&part->lock);
  for (unsigned class = 0; class < CLASSES; class++) {
    const struct bin *bin = &part->bins[class];
    unsigned length = 0, listed = 0, depot = 0;
    for (void *b = part->list[class]; b; b = block_words(b)[0], length++) {
      INVARIANT(0, block_is_free(b));
      INVARIANT(0, class_starts_block((uintptr_t)b, part->inverse[class]));
    }
    INVARIANT(0, length == count_length(part->count[class].now));
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
