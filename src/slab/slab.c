/* slab: see slab.h.                                                                                 floor: slab */
#include "slab/slab.h"

#include "os/os.h"
#include "slab/reserve.h"
#include "slab/wipe.h"
#include <string.h>

const struct chain_end chain_end;

/* 64 KiB holds eight or more blocks of up to 8 KiB. Larger classes need four granules for eight blocks. */
static size_t granules_for(unsigned class) { return class_size(class) <= 8 * KiB ? 1 : 4; }

#define LARGEST_SLAB (4 * GRANULE)
#define BLOCKS_MOST  (GRANULE / 16)

static char *first_block(const struct run *slab) {
  size_t size = class_size(slab->class);
  uintptr_t start = (uintptr_t)run_start(slab);
  return (char *)(start + (size - start % size) % size);
}

_Static_assert(LARGEST_SLAB / 16 < UINT16_MAX, "a head is an offset in units of 16 bytes");

size_t slab_bytes(unsigned class) { return granules_for(class) << GRANULE_SHIFT; }

struct run *slab_new(unsigned class, uint32_t epoch, struct pages_how *how) {
  bool zero = false;
  struct run *slab = epoch && granules_for(class) == 1 ? reserve_take(RUN_SLAB) : NULL;
  if (slab && how) how->ready = true;
  size_t guard = TSLAB_HARDENED && !slab && pages_wants_guard(true) ? 1 : 0;
  if (!slab) slab = pages_alloc(granules_for(class) + guard, GRANULE, RUN_SLAB, &zero, how);
  if (!slab) return NULL;
  if (guard) pages_guard(slab, granules_for(class) << GRANULE_SHIFT);
  slab->class = (uint8_t)class;
  slab->epoch = epoch;
  slab->moved = zero;
  size_t size = class_size(class);
  char *first = first_block(slab), *end = run_start(slab) + run_bytes(slab);
  slab->capacity = (uint16_t)((size_t)(end - first) / size);
  slab->threshold = (uint16_t)max_size(slab->capacity / 8u, 1); /* no slab is listed for one block */
  if (size >= slab_unit_bytes(slab)) {
    for (unsigned i = 0; i < slab->capacity; i++) slab->unlinked |= 1ull << slab_unit_of(slab, first + i * size);
  } else {
    unsigned last = slab_unit_of(slab, first + (slab->capacity - 1u) * size);
    slab->unlinked = ~0ull >> (SLAB_UNITS - 1 - last);
  }
  return slab;
}

void slab_set_owner(struct run *slab, pagemap_entry to) {
  pagemap_entry *entry = pages_pagemap() + run_index(slab);
  for (size_t i = 0; i < slab->granules; i++) __atomic_store_n(&entry[i], to, __ATOMIC_RELAXED);
}

bool slab_push(struct run *slab, void *head, void *tail, unsigned count, struct slab_how *how) {
  for (;; how->retries++) {
    enum slab_pushed pushed = slab_try_push(slab, head, tail, count, how->remote ? SLAB_REMOTE : 0);
    if (pushed != SLAB_BUSY) return pushed == SLAB_PUSHED_PENDING;
  }
}

struct chain slab_take(struct run *slab, bool stays_listed, struct slab_how *how) {
  uint64_t old = atomic_load_explicit(&slab->word, memory_order_relaxed), new;
  for (;; how->retries++) {
    new = old & ~(uint64_t)0xffffffff & ~(SLAB_LISTED | SLAB_REMOTE | SLAB_QUIET);
    if (stays_listed) new |= SLAB_LISTED;
    if (atomic_compare_exchange_weak_explicit(&slab->word, &old, new, memory_order_acquire, memory_order_relaxed))
      break;
  }
  how->remote = old & SLAB_REMOTE;
  return (struct chain){slab_block_at_head(run_start(slab), old), slab_count(old)};
}

/* Returns the first block that starts at or after the unit's start. */
static char *first_in_unit(const struct run *slab, unsigned unit) {
  char *first = first_block(slab), *start = run_start(slab) + unit * slab_unit_bytes(slab);
  if (start <= first) return first;
  size_t size = class_size(slab->class);
  return first + divide_up((size_t)(start - first), size) * size;
}

struct growing {
  struct chain chain;
  void *tail; /* valid if there is a head */
};

static void append(struct growing *growing, void *block) {
  if (growing->chain.count++ == 0) growing->chain.head = block;
  else block_link(growing->tail, block);
  growing->tail = block;
  block_mark_free(block);
}

/* Appends in random order, so many blocks at a time that the array fits on any thread's stack. A page has no more. */
#define SHUFFLED 256

static void append_shuffled(struct growing *growing, char *first, unsigned count, size_t size, uint64_t *sequence) {
  uint16_t order[SHUFFLED];
  for (; count > 0; first += SHUFFLED * size) {
    unsigned here = (unsigned)min_size(count, SHUFFLED);
    for (unsigned i = 0; i < here; i++) { /* inside-out shuffle: the entry at a random place before i moves to i */
      unsigned j = secret_below(sequence, i + 1);
      order[i] = order[j];
      order[j] = (uint16_t)i;
    }
    for (unsigned i = 0; i < here; i++) append(growing, first + order[i] * size);
    count -= here;
  }
}

static unsigned pick_unit(uint64_t unlinked, uint64_t *sequence) {
  if (!TSLAB_HARDENED) return lowest_bit(unlinked);
  for (unsigned skip = secret_below(sequence, (unsigned)__builtin_popcountll(unlinked)); skip > 0; skip--)
    unlinked &= unlinked - 1;
  return lowest_bit(unlinked);
}

/* Returns the units that linked blocks touch; `linked` has a bit for each unit in which linked blocks start. Beyond the
 * slab's last unit a bit means nothing. */
static uint64_t units_touched_by(const struct run *slab, unsigned class, uint64_t linked) {
  size_t size = class_size(class), bytes = slab_bytes(class);
  unsigned shift = log2_floor(max_size(os_page_size, bytes / SLAB_UNITS));
  uint64_t touched = 0;
  if (size <= (size_t)1 << shift) return linked | linked << 1;
  for (size_t at = (size - (uintptr_t)run_start(slab) % size) % size; at + size <= bytes; at += size) {
    unsigned from = (unsigned)(at >> shift), to = (unsigned)((at + size - 1) >> shift);
    if (linked >> from & 1) touched |= (~0ull >> (63 - (to - from))) << from;
  }
  return touched;
}

static size_t touched_bytes(const struct run *slab, unsigned class, uint64_t unlinked) {
  size_t bytes = slab_bytes(class), unit = max_size(os_page_size, bytes / SLAB_UNITS);
  uint64_t all = ~0ull >> (SLAB_UNITS - bytes / unit);
  return (size_t)__builtin_popcountll(all & units_touched_by(slab, class, ~unlinked)) * unit;
}

size_t slab_resident_bytes(const struct run *slab, const struct slab_look *look) {
  size_t size = class_size(look->class), bytes = slab_bytes(look->class);
  size_t unit = max_size(os_page_size, bytes / SLAB_UNITS);
  if (look->memory == SLAB_MAY_HOLD) return bytes;
  size_t touched = touched_bytes(slab, look->class, look->unlinked);
  if (size > unit || look->linked == 0) return touched;
  size_t own = (size_t)__builtin_popcountll(~look->unlinked & (~0ull >> (SLAB_UNITS - bytes / unit))) * unit;
  if (unit % size == 0) return own;
  return own + (touched - own) * look->used / look->linked;
}

static size_t absent_bytes(const struct run *slab) {
  if (LIKELY(slab->moved != SLAB_HAS_HOLES)) return 0;
  return run_bytes(slab) - touched_bytes(slab, slab->class, slab->unlinked);
}

static void count_absent(const struct run *slab, size_t before) {
  size_t now = absent_bytes(slab);
  if (now > before) pages_count_absent(now - before);
  else if (now < before) pages_count_present(before - now);
}

struct chain slab_link(struct run *slab, unsigned wanted) {
  size_t size = class_size(slab->class), unit_size = slab_unit_bytes(slab);
  char *end = first_block(slab) + slab->capacity * size;
  struct growing growing = {EMPTY_CHAIN, NULL};
  uint64_t sequence = TSLAB_HARDENED ? secret_draw() : 0;
  size_t absent = absent_bytes(slab);
  do {
    unsigned unit = pick_unit(slab->unlinked, &sequence);
    STORE_RACING(slab->unlinked, slab->unlinked & ~((uint64_t)1 << unit));
    char *first = first_in_unit(slab, unit), *unit_end = run_start(slab) + (unit + 1) * unit_size;
    if (unit_end > end) unit_end = end;
    if (TSLAB_HARDENED && first < unit_end)
      append_shuffled(&growing, first, (unsigned)divide_up((size_t)(unit_end - first), size), size, &sequence);
    else
      for (char *block = first; block < unit_end; block += size) append(&growing, block);
  } while (slab->unlinked && growing.chain.count < wanted);
  if (UNLIKELY(absent)) count_absent(slab, absent);
  struct chain chain = growing.chain;
  if (chain.count > 0) block_link(growing.tail, CHAIN_END);
  atomic_fetch_add_explicit(&slab->word, (uint64_t)chain.count << 32, memory_order_relaxed);
  return chain;
}

void *slab_block_of(const struct run *slab, const void *p) {
  char *first = first_block(slab);
  if ((const char *)p < first) return NULL;
  size_t size = class_size(slab->class), index = (size_t)((const char *)p - first) / size;
  return index < slab->capacity ? first + index * size : NULL;
}

bool slab_refuses(void *p) {
  const struct run *slab = pages_run_of(p);
  if (!slab_starts_block(slab, p)) return true;
  if (LOAD_RACING(slab->unlinked) >> slab_unit_of(slab, p) & 1) return true;
  return block_has_key(p) || block_is_drawn(p) || (uintptr_t)block_words(p)[1] == block_waiting_key(p);
}

/* Gives all pages of a slab with holes back, because a free run counts as a whole. */
static COLD bool return_whole(const struct run *slab) {
  bool done = os_purge(run_start(slab), run_bytes(slab));
  pages_count_purge(run_bytes(slab), done);
  return done;
}

void slab_wipe(const struct run *slab) {
  size_t size = class_size(slab->class), unit_size = slab_unit_bytes(slab);
  char *first = first_block(slab), *end = first + slab->capacity * size;
  if (!slab->unlinked) {
    wipe_blocks(first, end, size);
    return;
  }
  for (unsigned unit = 0; unit < run_bytes(slab) / unit_size; unit++) {
    char *unit_end = run_start(slab) + (unit + 1) * unit_size;
    if (slab->unlinked >> unit & 1) continue;
    wipe_blocks(first_in_unit(slab, unit), unit_end < end ? unit_end : end, size);
  }
}

bool slab_retire(struct run *slab) {
  slab_set_owner(slab, 0);
  if (TSLAB_HARDENED) pages_free_guard(slab);
  for (size_t i = 0; i < slab->granules; i++) slab[i].was = (uint8_t)(slab->class + 1);
  bool clean = slab_linked(atomic_load_explicit(&slab->word, memory_order_relaxed)) == 0 && slab->moved;
  size_t absent = absent_bytes(slab);
  if (absent && !clean && pages_would_exceed(absent)) clean = return_whole(slab);
  if (absent) pages_count_present(absent);
  slab->moved = false; /* pages_free would take it for a mapping of the run's own */
  return clean;
}

/* ---- which blocks are in use ------------------------------------------------------------------------------------- */

/* Returns true if `b`, met on the slab's list, is a block of the slab that shows no damage. A write to a free block may
 * lead the list anywhere. */
static bool is_sound(const struct run *slab, void *b) {
  bool is_inside = (size_t)((char *)b - run_start(slab)) < run_bytes(slab);
  return is_inside && slab_starts_block(slab, b) && block_is_intact(b);
}

/* Marks the blocks of a list up to its end, to a damaged one, or to one that it met before: a block that was freed
 * twice makes a ring of the list. Returns how many it marked. */
static unsigned mark_free(const struct run *slab, void *head, uint64_t *is_free) {
  size_t size = class_size(slab->class);
  char *first = first_block(slab);
  unsigned marked = 0;
  for (void *b = head; b != CHAIN_END && is_sound(slab, b); b = block_next(b), marked++) {
    size_t i = (size_t)((char *)b - first) / size;
    uint64_t bit = 1ull << (i % 64);
    if (UNLIKELY(is_free[i / 64] & bit)) break;
    is_free[i / 64] |= bit;
  }
  return marked;
}

void slab_each_used(const struct run *slab, void (*visit)(void *, size_t, void *), void *arg) {
  uint64_t is_free[BLOCKS_MOST / 64] = {0};
  uint64_t word = atomic_load_explicit(&slab->word, memory_order_acquire);
  size_t size = class_size(slab->class);
  char *first = first_block(slab);
  mark_free(slab, slab_block_at_head(run_start(slab), word), is_free);
  for (size_t i = 0; i < slab->capacity; i++) {
    char *block = first + i * size;
    bool linked = !(slab->unlinked >> slab_unit_of(slab, block) & 1);
    if (linked && !(is_free[i / 64] >> (i % 64) & 1)) visit(block, size, arg);
  }
}

/* ---- purging what lies between live blocks ----------------------------------------------------------------------- */

/* Returns the units that blocks in use touch: blocks that are neither on the list nor in an unlinked unit. Sets *whole
 * to the number of blocks that mark_free found on the list. */
static uint64_t units_in_use(const struct run *slab, void *head, unsigned *whole) {
  uint64_t is_free[BLOCKS_MOST / 64] = {0}, in_use = 0;
  size_t size = class_size(slab->class);
  char *first = first_block(slab);
  *whole = mark_free(slab, head, is_free);
  for (size_t i = 0; i < slab->capacity; i++) {
    unsigned from = slab_unit_of(slab, first + i * size), to = slab_unit_of(slab, first + (i + 1) * size - 1);
    if ((slab->unlinked >> from & 1) || (is_free[i / 64] >> (i % 64) & 1)) continue;
    in_use |= (~0ull >> (63 - (to - from))) << from;
  }
  return in_use;
}

/* Returns the units that may hold memory: those with linked blocks, and those into which such a block of the unit
 * before reaches. */
static uint64_t units_touched(const struct run *slab) {
  uint64_t linked = ~slab->unlinked;
  return slab->moved ? linked | linked << 1 : ~0ull;
}

static size_t purge_units(struct run *slab, uint64_t units) {
  size_t size = slab_unit_bytes(slab), purged = 0;
  bool is_done = true;
  slab->moved = SLAB_MAY_HOLD; /* in the child of a fork of this moment for ever */
  while (units) {
    unsigned from = lowest_bit(units);
    uint64_t gap = ~(units >> from); /* its lowest bit ends the stretch; 0: the stretch is all 64 */
    unsigned length = gap ? lowest_bit(gap) : SLAB_UNITS;
    bool done = os_purge(run_start(slab) + from * size, length * size);
    pages_count_purge(length * size, done);
    if (done) purged += length * size;
    else is_done = false;
    units &= length == SLAB_UNITS ? 0 : ~(((1ull << length) - 1) << from);
  }
  slab->moved = is_done ? SLAB_HOLDS_NONE : SLAB_MAY_HOLD;
  return purged;
}

struct slab_purge slab_purge_holes(struct run *slab) {
  struct slab_how how = {0};
  struct slab_purge purge = {0, 0, NULL};
  struct chain chain = slab_take(slab, false, &how);
  uint64_t all = ~0ull >> (SLAB_UNITS - run_bytes(slab) / slab_unit_bytes(slab));
  unsigned whole, dropped = 0;
  uint64_t holes = all & ~units_in_use(slab, chain.head, &whole), touched = units_touched(slab);
  void *kept = NULL, *kept_tail = NULL;
  size_t absent = absent_bytes(slab);
  for (void *b = chain.head, *next; b != CHAIN_END; b = next) {
    if (UNLIKELY(whole-- == 0 || !is_sound(slab, b))) {
      purge.damaged = b;
      break;
    }
    next = block_next(b);
    if (holes >> slab_unit_of(slab, b) & 1) {
      block_mark(b, 0); /* the purge may fail, or a fork may come first: see slab/wipe.h */
      STORE_RACING(slab->unlinked, slab->unlinked | 1ull << slab_unit_of(slab, b));
      dropped++;
      continue;
    }
    if (!kept_tail) kept_tail = b;
    block_link(b, kept);
    kept = b;
    purge.kept++;
  }
  atomic_fetch_sub_explicit(&slab->word, (uint64_t)dropped << 32, memory_order_relaxed);
  purge.bytes = purge_units(slab, holes & touched);
  if (slab->moved) slab->moved = SLAB_HAS_HOLES;
  count_absent(slab, absent);
  if (kept) slab_push(slab, kept, kept_tail, purge.kept, &how); /* PENDING is set, so this never asks to relist */
  return purge;
}
