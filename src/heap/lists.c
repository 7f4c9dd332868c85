/* lists: see lists.h.                                                                                floor: heap */
#include "heap/lists.h"

#include "heap/depot.h"
#include "heap/misuse.h"
#include "heap/sample.h"
#include "heap/store.h"

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static void set_then(struct count *count, uint32_t value) { __atomic_store_n(&count->then, value, __ATOMIC_RELEASE); }

/* What it is past at most, where it cannot be sampled for long. */
#define COUNTDOWN_LEAST (-(1 << 30))

/* Adds up what went by since the last visit, and takes blocks off the list that were `lost`, neither allocated nor
 * freed. Returns how many mallocs that was. */
INLINE unsigned add_up(struct part *part, unsigned class, unsigned lost) {
  struct bin *bin = &part->bins[class];
  struct count *count = &part->count[class], seen = count_look(count);
  struct passed passed = count_passed(seen.then, seen.now);
  INVARIANT(1, count_length(seen.now) <= INT16_MAX); /* what count_passed relies on */
  part_begin_list_change(part, class);
  bump(&bin->frees, passed.frees);
  bump(&bin->allocations, passed.mallocs);
  bump(&part->served, passed.mallocs);
  bump(&part->freed, passed.frees);
  if (lost) __atomic_store_n(&count->now, seen.now - lost, __ATOMIC_RELEASE);
  set_then(count, seen.now - lost);
  part_end_change(part);
  if (bin->countdown > COUNTDOWN_LEAST) bin->countdown -= (int32_t)passed.mallocs;
  return passed.mallocs;
}

unsigned list_lose(struct part *part, unsigned class, unsigned lost) { return add_up(part, class, lost); }

/* ---- a list aside ------------------------------------------------------------------------------------------------ */

/* So many frees may bury what waits to be timed, before a visit looks after it. When there were mallocs too, each had
 * one of these frees before it, as where more is freed than allocated. Then the list is held: no free goes by. */
#define ARMED_ROOM 32

/* Blocks that were freed since are on top, ARMED_ROOM at the most. One that is there twice would make a ring of them,
 * so each is marked as it is met; it is told, and with what follows it is lost, once what went by is added up, for
 * which lengths must be whole. */
unsigned list_join_aside(struct part *part) {
  unsigned class = part->sampling.class, length = list_length(part, class), whole = 0, mallocs = 0;
  void *last = NULL, *block = part->list[class];
  for (; block != CHAIN_END && whole < length && block_is_intact(block); whole++, block = block_next(block)) {
    block_mark_met(block);
    last = block;
  }
  void *bad = block == CHAIN_END ? NULL : block;
  block = part->list[class];
  for (unsigned i = 0; i < whole; i++, block = block_next(block)) block_mark_free(block);
  void *aside = list_take_back(part);
  part->bins[class].due++; /* again */
  if (last) block_link(last, aside);
  else part->list[class] = aside;
  if (whole < length) mallocs = list_lose(part, class, length - whole);
  if (bad) misuse_freed(bad);
  return mallocs;
}

/* So often do other classes wait, should no malloc come by that finds the list empty. */
#define DENIALS 256

void list_set_aside(struct part *part, unsigned class, unsigned held) {
  struct sampling *sampling = &part->sampling;
  if (UNLIKELY(sampling->aside)) {
    if (sampling->class != class && ++sampling->denied < DENIALS) return;
    list_join_aside(part);
  }
  sampling->denied = 0;
  sampling->held = (uint8_t)held;
  struct count *count = &part->count[class], rest = count_look(count);
  unsigned length = list_length(part, class), room = count_room(rest.now), most = held ? 0 : ARMED_ROOM;
  if (UNLIKELY(length == 0)) most = 0; /* nothing to set aside: the next free visits */
  uint32_t gone = count_of(room > most ? room - most : 0, length);
  rest.now -= gone;
  rest.then -= gone;
  part_begin_one_store(part);
  __atomic_store(count, &rest, __ATOMIC_RELEASE);
  if (UNLIKELY(length == 0)) {
    part_end_change(part);
    return;
  }
  __atomic_store_n(&sampling->gone, gone, __ATOMIC_RELEASE);
  __atomic_store_n(&sampling->class, (uint8_t)class, __ATOMIC_RELEASE);
  part_end_change(part);
  sampling->aside = part->list[class];
  part->bins[class].due--;
  sampling->urgent = part->bins[class].due > 0 || part->lifetime;
  part->list[class] = CHAIN_END;
}

/* ---- settling ---------------------------------------------------------------------------------------------------- */

unsigned list_settle(struct part *part, unsigned class) {
  unsigned mallocs = 0;
  if (UNLIKELY(part->sampling.aside) && part->sampling.class == class) mallocs = list_join_aside(part);
  if (UNLIKELY(part->sampling.timings == TIMED)) sample_count(part);
  mallocs += add_up(part, class, 0);
  bump(&part->visits, 1);
  part_notice(part);
  part->bins[class].last_visit = part->visits;
  return mallocs;
}

/* A quarter of the cap stays open even on a long list, so that no pattern of calls visits every time. */
static unsigned room_for(unsigned cap, unsigned length) {
  unsigned least = cap / 4u + 1;
  return cap > length + least ? cap - length : least;
}

void list_set(struct part *part, unsigned class, struct chain chain) {
  unsigned room = room_for(list_cap(&part->bins[class], class), chain.count);
  uint32_t count = count_of(room, chain.count + quarantine_of(part, class));
  part->list[class] = chain.head;
  part_begin_list_change(part, class);
  __atomic_store_n(&part->count[class].now, count, __ATOMIC_RELEASE);
  set_then(&part->count[class], count);
  part_end_change(part);
}

void lists_shut(struct part *part) {
  for (uint64_t left = part->opened; left; left &= left - 1) {
    unsigned class = lowest_bit(left);
    struct bin *bin = &part->bins[class];
    list_settle(part, class);
    INVARIANT(1, part->list[class] == CHAIN_END && bin->first == 0 && bin->newest == 0);
    part_begin_list_change(part, class);
    __atomic_store_n(&part->count[class].now, 0, __ATOMIC_RELEASE);
    set_then(&part->count[class], 0);
    part_end_change(part);
    bin->last_visit = bin->drained = bin->countdown = 0;
    bin->cap = bin->halvings = bin->due = 0;
  }
  part->opened = 0;
  STORE_RACING(part->granted_bytes, 0);
}

static unsigned aside_of(const struct part *part, unsigned class) {
  const struct sampling *sampling = &part->sampling;
  unsigned count = count_length(__atomic_load_n(&sampling->gone, __ATOMIC_ACQUIRE));
  return __atomic_load_n(&sampling->class, __ATOMIC_ACQUIRE) == class ? count : 0;
}

/* What went by since the last visit, and the length; between part_begin_look and part_end_look. */
INLINE struct list_totals look_at(const struct count *count) {
  uint32_t now = __atomic_load_n(&count->now, __ATOMIC_ACQUIRE);
  uint32_t then = __atomic_load_n(&count->then, __ATOMIC_ACQUIRE);
  if (now == then) return (struct list_totals){.length = count_length(now)};
  if ((int32_t)now < 0) now += ROOM_ONE - 1; /* a free found no room, and its visit will count it again */
  struct passed passed = count_passed(then, now);
  return (struct list_totals){.allocations = passed.mallocs, .frees = passed.frees, .length = count_length(now)};
}

struct list_totals list_look(const struct part *part, const struct bin *bin, unsigned class) {
  struct list_totals totals = look_at(&part->count[class]);
  totals.allocations += __atomic_load_n(&bin->allocations, __ATOMIC_ACQUIRE);
  totals.frees += __atomic_load_n(&bin->frees, __ATOMIC_ACQUIRE);
  totals.length += aside_of(part, class);
  return totals;
}

struct list_totals list_totals(struct part *part, unsigned class) {
  const struct bin *bin = part_bin(part, class);
  for (unsigned looks = 0;; part_look_again(&looks)) {
    uint32_t begun = part_begin_look(part);
    struct list_totals totals = list_look(part, bin, class);
    if (part_end_look(part, begun)) return totals;
  }
}

struct list_totals stored_totals(const struct stored *stored, unsigned class) {
  const struct bin *bin = &stored->store->bins[class];
  for (unsigned looks = 0;; part_look_again(&looks)) {
    struct part *part = stored_part(stored);
    if (part) {
      uint32_t begun = part_begin_look(part);
      struct list_totals totals = list_look(part, bin, class);
      if (part_end_look(part, begun) && stored_part(stored) == part) return totals;
    } else {
      struct list_totals totals = {.allocations = __atomic_load_n(&bin->allocations, __ATOMIC_ACQUIRE),
                                   .frees = __atomic_load_n(&bin->frees, __ATOMIC_ACQUIRE)};
      if (!stored_part(stored)) return totals;
    }
  }
}

/* The counts of two classes: now, then, now, then. */
typedef uint32_t two_counts __attribute__((vector_size(2 * sizeof(struct count)), may_alias));

/* Whether each class has freed as much since its last visit as it allocated; how much that is in all. then - now is
 * mallocs - frees + frees * ROOM_ONE. */
INLINE bool is_even(const struct part *part, uint64_t *passed) {
  const two_counts *counts = (const void *)part->count;
  two_counts changes = {0}, any = {0};
  const two_counts *last = &counts[log2_floor(part->opened) / 2];
#pragma GCC unroll 4
  for (const two_counts *at = &counts[lowest_bit(part->opened) / 2]; at <= last; at++) {
    two_counts change = __builtin_shufflevector(*at, *at, 1, 0, 3, 2) - *at;
    changes += change;
    any |= change;
  }
  *passed = (changes[0] >> LENGTH_BITS) + (changes[2] >> LENGTH_BITS);
  return ((any[0] | any[2]) & (ROOM_ONE - 1)) == 0;
}
_Static_assert(CLASSES % 2 == 0 && CLASSES / 2 * (LIST_MOST + 1) < ROOM_ONE, "what they free between visits adds up");
_Static_assert(offsetof(struct part, count) % sizeof(two_counts) == 0, "two counts are one load");

/* Counts what went by where that is uneven, so that it is even again once all is freed. */
static NOINLINE void count_uneven(struct part *part) {
  for (uint64_t left = part->opened; left; left &= left - 1) {
    unsigned class = lowest_bit(left);
    struct count seen = count_look(&part->count[class]);
    if (count_length(seen.now) != count_length(seen.then)) add_up(part, class, 0);
  }
}

struct list_sums list_sums(struct part *part) {
  uint64_t passed;
  if (UNLIKELY(!is_even(part, &passed))) {
    count_uneven(part);
    is_even(part, &passed);
  }
  return (struct list_sums){part->served + passed, part->freed + passed};
}

/* One look at all classes, because this is asked twice for each epoch. */
uint64_t list_served(const struct part *part) {
  for (unsigned looks = 0;; part_look_again(&looks)) {
    uint32_t begun = part_begin_look(part);
    uint64_t sum = __atomic_load_n(&part->served, __ATOMIC_ACQUIRE);
    for (unsigned class = 0; class < CLASSES; class++) sum += look_at(&part->count[class]).allocations;
    if (part_end_look(part, begun)) return sum;
  }
}

/* ---- caps -------------------------------------------------------------------------------------------------------- */

static unsigned most_blocks(unsigned class) {
  return (unsigned)max_size(blocks_in(class, LIST_FULL_BYTES, LIST_MOST), LIST_FULL_LEAST);
}

static void set_cap(struct part *part, unsigned class, unsigned cap) {
  struct bin *bin = &part->bins[class];
  STORE_RACING(part->granted_bytes, part->granted_bytes + (cap - (size_t)bin->cap) * class_size(class));
  bin->cap = (uint16_t)cap;
}

void list_open(struct part *part, unsigned class) {
  part->opened |= (uint64_t)1 << class;
  set_cap(part, class, blocks_in(class, LIST_FIRST_BYTES, LIST_FIRST));
  part->bins[class].halvings = 0;
  part->bins[class].countdown = sample_draw(part);
}

/* Halves the cap of a class that did not come by for a while; a list that is then too long goes to the depot. */
static void take_back(struct part *part, unsigned victim) {
  unsigned cap = part->bins[victim].cap / 2u;
  if (part->visits - part->bins[victim].last_visit < IDLE_VISITS || cap == 0) return;
  list_settle(part, victim);
  struct chain chain = list_chain(part, victim);
  if (chain.count > cap) {
    if (!depot_put(part, victim, chain)) return;
    chain = EMPTY_CHAIN;
  }
  set_cap(part, victim, cap);
  list_set(part, victim, chain);
}

void list_grow(struct part *part, unsigned class, bool locked) {
  struct bin *bin = &part->bins[class];
  if (bin->halvings) {
    bin->halvings--;
    return;
  }
  unsigned cap = bin->cap, more = (unsigned)min_size(cap * 2, most_blocks(class));
  size_t bytes = (more - cap) * class_size(class);
  if (more <= cap) return;
  if (locked && part->granted_bytes + bytes > GRANTED_MOST) {
    part->victim = (part->victim + 1) % CLASSES; /* one a visit: whoever is idle is found soon enough */
    if (part->victim != class) take_back(part, part->victim);
  }
  if (part->granted_bytes + bytes <= GRANTED_MOST) set_cap(part, class, more);
}

void list_shrink(struct part *part, unsigned class) {
  if (list_cap(&part->bins[class], class) > list_drained_cap(class)) part->bins[class].halvings++;
}
