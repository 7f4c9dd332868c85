/* tcache: see tcache.h.                                                                             floor: heap */
#include "heap/tcache.h"

#include "base/options.h"
#include "heap/cut.h"
#include "heap/draw.h"
#include "heap/magazine.h"
#include "heap/misuse.h"
#include "heap/profile.h"
#include "heap/store.h"
#include "heap/timing.h"

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static void set_then(struct count *count, uint32_t value) { __atomic_store_n(&count->then, value, __ATOMIC_RELEASE); }

/* A countdown stops here if the class cannot be sampled for long. */
#define COUNTDOWN_LEAST (-(1 << 30))

/* A block that was freed twice makes a ring of a list. Once a part of the ring went to the slabs, the rest leads to
 * blocks that are free there, and the list hands out more blocks than it holds: its length is negative. */
static bool is_overdrawn(uint32_t now) { return count_length(now) > INT16_MAX; }

/* Gives up a list that is overdrawn. Returns how many blocks to remove from its count, a negative number. */
static COLD unsigned give_up_overdrawn(struct heap *heap, unsigned class, uint32_t now) {
  heap->list[class] = CHAIN_END;
  misuse_overdrawn(class);
  return count_length(now) - ROOM_ONE;
}

/* Adds up the calls since the last visit, and removes `lost` missing blocks from the count. Returns how many of the
 * calls were mallocs. */
INLINE unsigned add_up(struct heap *heap, unsigned class, unsigned lost) {
  struct bin *bin = &heap->bins[class];
  struct count *count = &heap->count[class], seen = count_look(count);
  struct passed passed = count_passed(seen.then, seen.now);
  if (UNLIKELY(is_overdrawn(seen.now))) lost = give_up_overdrawn(heap, class, seen.now);
  heap_begin_list_change(heap, class);
  counter_add_release(&bin->frees, passed.frees);
  counter_add_release(&bin->allocations, passed.mallocs);
  counter_add_release(&heap->served, passed.mallocs);
  counter_add_release(&heap->freed, passed.frees);
  pages_note_freed(passed.frees * (class_size(class) + os_page_size)); /* the most that these can set free */
  if (lost) __atomic_store_n(&count->now, seen.now - lost, __ATOMIC_RELEASE);
  set_then(count, seen.now - lost);
  heap_end_change(heap);
  if (bin->countdown > COUNTDOWN_LEAST) bin->countdown -= (int32_t)passed.mallocs;
  return passed.mallocs;
}

unsigned tcache_lose(struct heap *heap, unsigned class, unsigned lost) { return add_up(heap, class, lost); }

/* ---- a list detached --------------------------------------------------------------------------------------------- */

/* A detached list waits for a malloc to time. ARMED_ROOM frees may pass meanwhile; then a visit looks after the list.
 * If mallocs passed, too, each took a block of one of these frees, as in a program that frees more than it allocates.
 * Then the visit holds the list: no free passes. */
#define ARMED_ROOM 32

/* The blocks freed since are on top, at most ARMED_ROOM. A block that is there twice would make a ring of them, so this
 * marks each block that it meets. Such a block and all behind it are lost. This reports it only after it has added up
 * the calls, for which the lengths must be whole. */
unsigned tcache_rejoin(struct heap *heap) {
  unsigned class = heap->sampling.class, whole = 0, mallocs = 0;
  struct chain chain = tcache_lift(heap, class);
  void *last = NULL, *block = chain.head;
  for (; block != CHAIN_END && whole < chain.count && block_is_intact(block); whole++, block = block_next(block)) {
    block_mark_met(block);
    last = block;
  }
  void *bad = block == CHAIN_END ? NULL : block;
  block = chain.head;
  for (unsigned i = 0; i < whole; i++, block = block_next(block)) block_mark_free(block);
  void *detached = tcache_attach(heap);
  heap->bins[class].due++; /* the list must be detached again */
  if (last) block_link(last, detached);
  heap->list[class] = last ? chain.head : detached;
  if (whole < chain.count) mallocs = tcache_lose(heap, class, chain.count - whole);
  if (bad) misuse_freed(bad);
  return mallocs;
}

/* How often other classes wait for their turn if no malloc finds the list empty. */
#define DENIALS 256

void tcache_detach(struct heap *heap, unsigned class, unsigned held) {
  struct sampling *sampling = &heap->sampling;
  if (UNLIKELY(sampling->detached)) {
    if (sampling->class != class && ++sampling->denied < DENIALS) return;
    tcache_rejoin(heap);
  }
  sampling->denied = 0;
  sampling->held = (uint8_t)held;
  struct chain chain = tcache_lift(heap, class);
  struct count *count = &heap->count[class], rest = count_look(count);
  unsigned length = chain.count, room = count_room(rest.now), most = held ? 0 : ARMED_ROOM;
  if (UNLIKELY(length == 0)) most = 0; /* nothing to detach: the next free visits */
  uint32_t gone = count_of(room > most ? room - most : 0, length);
  rest.now -= gone;
  rest.then -= gone;
  heap_begin_one_store(heap);
  __atomic_store(count, &rest, __ATOMIC_RELEASE);
  if (UNLIKELY(length == 0)) {
    heap_end_change(heap);
    heap->list[class] = chain.head;
    return;
  }
  __atomic_store_n(&sampling->gone, gone, __ATOMIC_RELEASE);
  __atomic_store_n(&sampling->class, (uint8_t)class, __ATOMIC_RELEASE);
  heap_end_change(heap);
  heap->bins[class].due--;
  sampling->urgent = heap->bins[class].due > 0 || heap->arena;
  sampling->detached = chain.head;
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */

unsigned tcache_fold(struct heap *heap, unsigned class) {
  unsigned mallocs = 0;
  if (profile_is_on()) cut_settle(heap, class);
  if (UNLIKELY(tcache_is_detached(heap, class))) mallocs = tcache_rejoin(heap);
  if (UNLIKELY(heap->sampling.timings == TIMED)) timing_count(heap);
  mallocs += add_up(heap, class, 0);
  counter_add_release(&heap->visits, 1);
  heap_notice(heap);
  heap->bins[class].last_visit = heap->visits;
  return mallocs;
}

/* Returns the room of a list. Even a long list has room for a quarter of the cap, so that no pattern of calls visits
 * every time. */
static unsigned room_for(unsigned cap, unsigned length) {
  unsigned least = cap / 4u + 1;
  return cap > length + least ? cap - length : least;
}

void tcache_set(struct heap *heap, unsigned class, struct chain chain) {
  unsigned room = room_for(tcache_cap(heap, class), chain.count);
  uint32_t count = count_of(room, chain.count + quarantine_of(heap, class));
  heap_begin_list_change(heap, class);
  __atomic_store_n(&heap->count[class].now, count, __ATOMIC_RELEASE);
  set_then(&heap->count[class], count);
  heap_end_change(heap);
  FENCE_ALL(); /* for a handler that calls exit: the blocks are counted before the list has them */
  heap->list[class] = chain.head;
}

struct chain tcache_take(struct heap *heap, unsigned class) {
  tcache_fold(heap, class);
  struct chain chain = tcache_lift(heap, class);
  tcache_set(heap, class, EMPTY_CHAIN);
  if (profile_is_on()) cut_list(heap, class);
  return chain;
}

void tcache_shut(struct heap *heap) {
  for (uint64_t left = heap->opened; left; left &= left - 1) {
    unsigned class = lowest_bit(left);
    struct bin *bin = &heap->bins[class];
    tcache_fold(heap, class);
    INVARIANT(1, heap->list[class] == CHAIN_END && bin->first == 0 && bin->newest == 0);
    heap_begin_list_change(heap, class);
    __atomic_store_n(&heap->count[class].now, 0, __ATOMIC_RELEASE);
    set_then(&heap->count[class], 0);
    heap_end_change(heap);
    bin->last_visit = bin->drained = bin->countdown = 0;
    bin->cap = bin->halvings = bin->due = 0;
  }
  heap->opened = 0;
  STORE_RACING(heap->granted_bytes, 0);
}

static unsigned detached_of(const struct heap *heap, unsigned class) {
  const struct sampling *sampling = &heap->sampling;
  unsigned count = count_length(__atomic_load_n(&sampling->gone, __ATOMIC_ACQUIRE));
  return __atomic_load_n(&sampling->class, __ATOMIC_ACQUIRE) == class ? count : 0;
}

/* Returns the calls since the last visit, and the length. Called between heap_begin_look and heap_end_look. */
INLINE struct tcache_totals look_at(const struct count *count) {
  uint32_t now = __atomic_load_n(&count->now, __ATOMIC_ACQUIRE);
  uint32_t then = __atomic_load_n(&count->then, __ATOMIC_ACQUIRE);
  if (now == then) return (struct tcache_totals){.length = count_length(now)};
  if ((int32_t)now < 0) now += ROOM_ONE - 1; /* a free found no room: its visit counts it anew */
  struct passed passed = count_passed(then, now);
  return (struct tcache_totals){.allocations = passed.mallocs, .frees = passed.frees, .length = count_length(now)};
}

struct tcache_totals tcache_look(const struct heap *heap, const struct bin *bin, unsigned class) {
  struct tcache_totals totals = look_at(&heap->count[class]);
  totals.allocations += __atomic_load_n(&bin->allocations, __ATOMIC_ACQUIRE);
  totals.frees += __atomic_load_n(&bin->frees, __ATOMIC_ACQUIRE);
  totals.length += detached_of(heap, class);
  return totals;
}

struct tcache_totals tcache_totals(struct heap *heap, unsigned class) {
  const struct bin *bin = heap_bin(heap, class);
  for (unsigned looks = 0;; heap_look_again(&looks)) {
    uint32_t begun = heap_begin_look(heap);
    struct tcache_totals totals = tcache_look(heap, bin, class);
    if (heap_end_look(heap, begun)) return totals;
  }
}

struct tcache_totals stored_totals(const struct stored *stored, unsigned class) {
  const struct bin *bin = &stored->store->bins[class];
  for (unsigned looks = 0;; heap_look_again(&looks)) {
    struct heap *heap = stored_heap(stored);
    if (heap) {
      uint32_t begun = heap_begin_look(heap);
      struct tcache_totals totals = tcache_look(heap, bin, class);
      if (heap_end_look(heap, begun) && stored_heap(stored) == heap) return totals;
    } else {
      struct tcache_totals totals = {.allocations = __atomic_load_n(&bin->allocations, __ATOMIC_ACQUIRE),
                                   .frees = __atomic_load_n(&bin->frees, __ATOMIC_ACQUIRE)};
      if (!stored_heap(stored)) return totals;
    }
  }
}

/* The counts of two classes: now, then, now, then. */
typedef uint32_t two_counts __attribute__((vector_size(2 * sizeof(struct count)), may_alias));

/* Returns true if each class had as many frees as mallocs since its last visit, and sets *passed to the number of
 * either over all classes. then - now is mallocs - frees + frees * ROOM_ONE. */
INLINE bool is_even(const struct heap *heap, uint64_t *passed) {
  const two_counts *counts = (const void *)heap->count;
  two_counts changes = {0}, any = {0};
  const two_counts *last = &counts[log2_floor(heap->opened) / 2];
#pragma GCC unroll 4
  for (const two_counts *at = &counts[lowest_bit(heap->opened) / 2]; at <= last; at++) {
    two_counts change = __builtin_shufflevector(*at, *at, 1, 0, 3, 2) - *at;
    changes += change;
    any |= change;
  }
  *passed = (changes[0] >> LENGTH_BITS) + (changes[2] >> LENGTH_BITS);
  return ((any[0] | any[2]) & (ROOM_ONE - 1)) == 0;
}
_Static_assert(CLASSES % 2 == 0 && CLASSES / 2 * (LIST_MOST + 1) < ROOM_ONE, "what they free between visits adds up");
_Static_assert(offsetof(struct heap, count) % sizeof(two_counts) == 0, "two counts are one load");

/* Adds up the calls of the uneven classes, so that they are even again once all blocks are freed. */
static NOINLINE void count_uneven(struct heap *heap) {
  for (uint64_t left = heap->opened; left; left &= left - 1) {
    unsigned class = lowest_bit(left);
    struct count seen = count_look(&heap->count[class]);
    if (count_length(seen.now) != count_length(seen.then)) add_up(heap, class, 0);
  }
}

struct tcache_sums tcache_sums(struct heap *heap) {
  uint64_t passed;
  if (UNLIKELY(!is_even(heap, &passed))) {
    count_uneven(heap);
    is_even(heap, &passed);
  }
  return (struct tcache_sums){heap->served + passed, heap->freed + passed};
}

/* Looks once at all classes, because each epoch calls this twice. */
uint64_t tcache_served(const struct heap *heap) {
  for (unsigned looks = 0;; heap_look_again(&looks)) {
    uint32_t begun = heap_begin_look(heap);
    uint64_t sum = __atomic_load_n(&heap->served, __ATOMIC_ACQUIRE);
    for (unsigned class = 0; class < CLASSES; class++) sum += look_at(&heap->count[class]).allocations;
    if (heap_end_look(heap, begun)) return sum;
  }
}

uint64_t tcache_bytes(const struct heap *heap) {
  uint64_t bytes = 0;
  for (uint64_t left = heap->opened; left; left &= left - 1) {
    unsigned class = lowest_bit(left);
    struct count seen = count_look(&heap->count[class]);
    bytes += (heap->bins[class].allocations + count_passed(seen.then, seen.now).mallocs) * class_size(class);
  }
  return bytes;
}

/* ---- caps -------------------------------------------------------------------------------------------------------- */

unsigned tcache_longest(unsigned class) {
  return (unsigned)max_size(blocks_in(class, LIST_FULL_BYTES, LIST_MOST), LIST_FULL_LEAST);
}

static void set_cap(struct heap *heap, unsigned class, unsigned cap) {
  struct bin *bin = &heap->bins[class];
  STORE_RACING(heap->granted_bytes, heap->granted_bytes + (cap - (size_t)bin->cap) * class_size(class));
  bin->cap = (uint16_t)cap;
}

void tcache_open(struct heap *heap, unsigned class) {
  heap->opened |= (uint64_t)1 << class;
  set_cap(heap, class, blocks_in(class, LIST_FIRST_BYTES, LIST_FIRST));
  heap->bins[class].halvings = 0;
  heap->bins[class].countdown = draw_mallocs(heap);
}

/* Halves the cap of a class that made no visit for a while. If its list is then too long, the list goes to the
 * magazines. */
static void take_back(struct heap *heap, unsigned victim) {
  unsigned cap = heap->bins[victim].cap / 2u;
  if (heap->visits - heap->bins[victim].last_visit < IDLE_VISITS || cap == 0) return;
  tcache_fold(heap, victim);
  struct chain chain = tcache_lift(heap, victim);
  bool goes = chain.count > cap && magazine_put(heap, victim, chain);
  if (goes) chain = EMPTY_CHAIN;
  if (chain.count <= cap) set_cap(heap, victim, cap);
  tcache_set(heap, victim, chain);
  if (profile_is_on()) cut_list(heap, victim); /* folding made the list whole */
}

void tcache_grow(struct heap *heap, unsigned class, bool locked) {
  struct bin *bin = &heap->bins[class];
  if (bin->halvings) {
    bin->halvings--;
    return;
  }
  unsigned cap = bin->cap, more = (unsigned)min_size(cap * 2, tcache_longest(class));
  size_t bytes = (more - cap) * class_size(class);
  if (more <= cap || bin->allocations / LIST_EARNED < more) return;
  if (locked && heap->granted_bytes + bytes > options.list_bytes) {
    heap->victim = (uint8_t)((heap->victim + 1) % CLASSES); /* one class a visit, which finds an idle one soon enough */
    if (heap->victim != class) take_back(heap, heap->victim);
  }
  if (heap->granted_bytes + bytes <= options.list_bytes) set_cap(heap, class, more);
}

void tcache_shrink(struct heap *heap, unsigned class) {
  struct bin *bin = &heap->bins[class];
  unsigned drained = tcache_drained_cap(class, (int64_t)(bin->allocations - bin->frees));
  if ((unsigned)bin->cap >> bin->halvings > drained) bin->halvings++;
}
