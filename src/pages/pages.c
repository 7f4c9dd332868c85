/* pages: see pages.h.                                                                               floor: pages
 *
 * Free runs hang in bins by size; those with a dirty granule have bins of their own. pages_alloc cuts a run of the
 * smallest bin that has one that fits, so that long runs stay long. Of two runs of a size it prefers the dirty one,
 * because its memory is resident already. If the runs of a bin may be too short, the search looks only at a few of them
 * (docs/decisions/0024). Dirty free runs also hang in lists by age, so a purge finds the next one without a search.
 *
 * Under a limit of addresses, large free runs are unmapped. Such a run is RUN_UNMAPPED and hangs in bins of its own.
 * Before the frontier moves, a piece of one that fits is mapped again. */
#include "pages/pages.h"

#include "base/options.h"
#include "os/os.h"
#include <string.h>

#define USUAL_RESERVATION    (64 * GiB) /* or four times the machine's memory, a power of two */
#define LARGEST_RESERVATION  (16 * 1024 * GiB)
#define SMALLEST_RESERVATION (16 * MiB)
#define COMMIT_STEP          ((2 * MiB) >> GRANULE_SHIFT)  /* granules: the bytes of a huge page */
#define COMMIT_STEP_MOST     ((16 * MiB) >> GRANULE_SHIFT) /* so that a heap of gigabytes makes few calls */
#define TABLE_STEP           (64 * KiB)
#define UNMAPPED_RUNS        4096 /* each takes a mapping, of which the kernel allows a process 65,530 */
#define UNMAPPED_LEAST       ((1 * MiB) >> GRANULE_SHIFT) /* smaller free runs stay mapped under a limit */
#define MAP_TRIES            4 /* runs that one search tries to map again */
#define PURGE_PIECE          ((16 * MiB) >> GRANULE_SHIFT) /* given back by one call */
#define PURGE_RESTS          500 /* milliseconds at most that a request without memory waits for a purge */
#define ZERO_BY_PURGE        ((32 * MiB) >> GRANULE_SHIFT) /* much of such a stretch may not be resident */
#define PURGE_SHARE          32 /* one purge takes a piece out of the bins, or this part of a longer run */

#define ROOMS_A_TIME         64 /* freed under one hold of the lock */

#define EXACT_BINS 32 /* one for each size up to 2 MiB, then eight for each doubling */
#define BINS       256
#define LOOKS      8 /* at most, at the dirty and at the clean runs of a bin whose runs may be too short */
#define AGES       4 /* ticks that have a list each; the scavenger purges runs older than two */

char pages_before_start[PAGEMAP_OFFSET];
struct pages pages = {.key = (uintptr_t)pages_before_start - KEY_BELOW_BASE, .base = pages_before_start};
struct lock pages_lock;

/* The `class` of a RUN_META: how a guard was made, or ROOM. */
enum guard { NO_GUARD, GUARD_APART, GUARD_LIGHT, GUARD_MAPPED, ROOM };

/* The tables, by ascending address. A table has address space for `room` bytes, of which the first `reserved` are
 * mapped and the first `ready` writable. */
enum { RUNS, QUARTER_RUNS, CHUNK_STARTS, CHUNK_FREED, DIRTY, PAGEMAP, TABLES };
struct table {
  char *start;
  size_t room, reserved, ready;
};

/* Free runs without dirty granules, with some, and unmapped ones. */
enum { CLEAN, HAS_DIRTY, UNMAPPED, SETS };

static struct {
  struct table tables[TABLES];
  size_t reserved; /* granules from base on that are mapped */
  size_t coverage; /* granules that the tables have room for */
  size_t foreseen; /* granules for which a trim leaves the tables their addresses */
  size_t first;    /* first granule that is not a table */
  size_t frozen;   /* first granule that is neither a table nor frozen */
  size_t memory;   /* granules of the machine's memory; SIZE_MAX: not known */
  size_t free_clean, unmapped, lost; /* granules; lost: see lose */
  size_t unmapped_runs;
  unsigned purging; /* runs that a thread purges just now, which no other thread can take */
  size_t returned, purge_calls, purge_failures, moved_runs, populated, limit_purged;
  uint64_t tick;
  bool reserves_on_demand; /* address space is scarce: nothing is mapped before it is needed */
  uint32_t bins[SETS][BINS]; /* [set][size] */
  uint64_t occupied[SETS][BINS / 64];
  uint32_t ages[AGES + 1]; /* rings of dirty free runs: [tick at which they became dirty % AGES]; [AGES]: older ones */
  size_t looks; /* see struct pages_totals */
  uint32_t newest_room, oldest_room; /* granules; 0: none */
  size_t rooms;
} state;
static _Atomic size_t free_dirty; /* granules */
static size_t clean_kept;         /* granules that were free and clean after the last unmap_clean: a hint */
static _Atomic bool is_limited;   /* address space, or pages that can be written */
_Atomic bool pages_mapped_counts;
static _Atomic size_t mapping_limit = SIZE_MAX;
static _Atomic size_t locking_limit = SIZE_MAX;
static _Atomic size_t absent;     /* bytes of runs in use that hold no memory: holes in slabs, guards, traps, and the
                                   * clean free memory of a frozen child */
static _Atomic size_t hard_limit = SIZE_MAX; /* bytes */
static _Atomic size_t soft_limit = SIZE_MAX;
_Atomic unsigned pages_pressure; /* enum pressure */
_Atomic bool pages_counts_freed;
static _Atomic size_t freed_since, wanted_for_round; /* bytes */
static _Atomic uint32_t rounds;

static struct run *run_at(size_t granule) { return pages.runs + granule; }

/* The load may race: another thread may change the kind of a run in use (heap/large_cache.c). */
static bool is_of_kind(const struct run *run, enum run_kind kind) { return LOAD_RACING(run->kind) == kind; }
static bool is_free(const struct run *run) { return is_of_kind(run, RUN_FREE); }

/* ---- dirty bits -------------------------------------------------------------------------------------------------- */

static uint64_t *dirty_word(size_t granule) { return (uint64_t *)(void *)state.tables[DIRTY].start + granule / 64; }

static uint64_t mask_within(size_t from, size_t to) { /* bits of from's word that lie in [from, to) */
  uint64_t mask = ~0ull << (from % 64);
  return to / 64 == from / 64 ? mask & ~(~0ull << (to % 64)) : mask;
}

static size_t next_word(size_t granule) { return (granule / 64 + 1) * 64; }

static size_t dirty_count(size_t from, size_t to) {
  size_t count = 0;
  for (; from < to; from = next_word(from))
    count += (size_t)__builtin_popcountll(*dirty_word(from) & mask_within(from, to));
  return count;
}

static void dirty_set(size_t from, size_t to, bool value) {
  for (; from < to; from = next_word(from)) {
    uint64_t mask = mask_within(from, to);
    *dirty_word(from) = value ? *dirty_word(from) | mask : *dirty_word(from) & ~mask;
  }
}

/* Returns the first granule of [from, to) whose bit is `value`, or `to`. */
static size_t dirty_find(size_t from, size_t to, bool value) {
  for (; from < to; from = next_word(from)) {
    uint64_t bits = (value ? *dirty_word(from) : ~*dirty_word(from)) & mask_within(from, to);
    if (bits) return from / 64 * 64 + lowest_bit(bits);
  }
  return to;
}

/* ---- lists by age ------------------------------------------------------------------------------------------------ */

static uint32_t *age_of(uint64_t seen) { return &state.ages[state.tick - seen < AGES ? seen % AGES : AGES]; }

static void link_younger(uint32_t a, uint32_t b) {
  run_at(a)->younger = b;
  run_at(b)->older = a;
}

static void age_insert(struct run *run) {
  uint32_t *first = age_of(run->seen), g = (uint32_t)run_index(run);
  if (!*first) *first = run->older = g;
  link_younger(run_at(*first)->older, g);
  link_younger(g, *first);
}

static void age_remove(struct run *run) {
  uint32_t *first = age_of(run->seen), g = (uint32_t)run_index(run);
  link_younger(run->older, run->younger);
  if (*first == g) *first = run->younger == g ? 0 : run->younger;
}

/* Appends the other ring to the first, in a fixed number of steps, however long they are. */
static void join_ages(uint32_t *first, uint32_t *other) {
  if (*first && *other) {
    uint32_t last = run_at(*other)->older;
    link_younger(run_at(*first)->older, *other);
    link_younger(last, *first);
  } else if (*other) {
    *first = *other;
  }
  *other = 0;
}

/* ---- bins -------------------------------------------------------------------------------------------------------- */

static unsigned bin_of(size_t granules) {
  if (granules <= EXACT_BINS) return (unsigned)granules - 1;
  unsigned log = log2_floor(granules);
  return EXACT_BINS + 8 * (log - 5) + (unsigned)((granules >> (log - 3)) & 7);
}

static unsigned set_of(const struct run *run) {
  if (run->kind == RUN_UNMAPPED) return UNMAPPED;
  return run->dirty != 0 ? HAS_DIRTY : CLEAN;
}

/* Adds the run's granules to the counts of free ones, or subtracts them. */
static void count_free(const struct run *run, bool joins) {
  size_t dirty = run->dirty, clean = run->granules - dirty;
  if (run->kind == RUN_UNMAPPED) {
    STORE_RACING(state.unmapped, state.unmapped + (joins ? clean : -clean));
    state.unmapped_runs += joins ? 1 : -(size_t)1;
    return;
  }
  if (joins) atomic_fetch_add_explicit(&free_dirty, dirty, memory_order_relaxed);
  else atomic_fetch_sub_explicit(&free_dirty, dirty, memory_order_relaxed);
  STORE_RACING(state.free_clean, state.free_clean + (joins ? clean : -clean));
}

static void bin_remove(struct run *run) {
  count_free(run, false);
  unsigned set = set_of(run), bin = bin_of(run->granules);
  if (run->next) run_at(run->next)->previous = run->previous;
  if (run->previous) run_at(run->previous)->next = run->next;
  else state.bins[set][bin] = run->next;
  if (!state.bins[set][bin]) state.occupied[set][bin / 64] &= ~(1ull << (bin % 64));
  if (run->dirty) age_remove(run);
  run->next = run->previous = 0;
  run->kind = RUN_NONE;
}

/* The caller has set granules, dirty and seen. `kind`: RUN_FREE or RUN_UNMAPPED. */
static void bin_insert(struct run *run, enum run_kind kind) {
  size_t g = run_index(run), end = g + run->granules;
  run->kind = (uint8_t)kind;
  count_free(run, true);
  unsigned set = set_of(run), bin = bin_of(run->granules);
  run_at(end - 1)->back = run->granules - 1;
  run->previous = 0;
  run->next = state.bins[set][bin];
  if (run->next) run_at(run->next)->previous = (uint32_t)g;
  state.bins[set][bin] = (uint32_t)g;
  state.occupied[set][bin / 64] |= 1ull << (bin % 64);
  if (run->dirty) age_insert(run);
}

/* Returns where a piece of `granules` on a multiple of `alignment` would start in the run, or 0 if it does not fit. */
static size_t place_in(const struct run *run, size_t granules, size_t alignment) {
  size_t g = run_index(run);
  size_t start = round_up((uintptr_t)run_start(run), alignment);
  size_t at = (start - (uintptr_t)pages.base) >> GRANULE_SHIFT;
  return at + granules <= g + run->granules ? at : 0;
}

/* Looks at up to `looks` runs of one bin. */
static size_t find_in_bin(unsigned set, unsigned bin, size_t granules, size_t alignment, size_t looks,
                          struct run **found) {
  for (uint32_t g = state.bins[set][bin]; g && looks-- > 0; g = run_at(g)->next) {
    state.looks++;
    size_t at = place_in(run_at(g), granules, alignment);
    if (!at) continue;
    *found = run_at(g);
    return at;
  }
  return 0;
}

/* Returns the first bin from `bin` on that has a run of one of two sets, or BINS. */
static unsigned next_bin(unsigned bin, unsigned set, unsigned other) {
  for (; bin < BINS; bin = (bin | 63) + 1) {
    uint64_t occupied = (state.occupied[set][bin / 64] | state.occupied[other][bin / 64]) >> (bin % 64);
    if (occupied) return bin + lowest_bit(occupied);
  }
  return BINS;
}

/* Searches the bins from the piece's own upwards. Runs can be too short only up to the bin of the piece plus the most
 * that alignment may cost: in two bins, except for large alignments. */
static size_t find_place(size_t granules, size_t alignment, size_t looks, struct run **found) {
  for (unsigned bin = bin_of(granules); (bin = next_bin(bin, CLEAN, HAS_DIRTY)) < BINS; bin++) {
    size_t at = find_in_bin(HAS_DIRTY, bin, granules, alignment, looks, found);
    if (!at) at = find_in_bin(CLEAN, bin, granules, alignment, looks, found);
    if (at) return at;
  }
  return 0;
}

/* Returns one of the largest runs of a set, or 0. */
static uint32_t largest(unsigned set) {
  for (unsigned word = BINS / 64; word-- > 0;)
    if (state.occupied[set][word]) return state.bins[set][64 * word + log2_floor(state.occupied[set][word])];
  return 0;
}

/* ---- the frontier ------------------------------------------------------------------------------------------------ */

/* The counts of what is reserved rise before the kernel maps it. So a fork child never has a mapping there that it does
 * not know: see pages_freeze. */
static bool extend_table(struct table *table, size_t wanted) {
  size_t before = table->reserved;
  table->reserved = wanted;
  if (os_reserve_at(table->start + before, wanted - before)) return true;
  table->reserved = before;
  return false;
}

/* Returns true if the program has mapped something there. */
static bool is_occupied(size_t at, size_t granules) {
  return os_is_occupied(pages.base + (at << GRANULE_SHIFT), granules << GRANULE_SHIFT);
}

/* A fork child unmaps what is counted, so the count never covers a mapping of the program's. A child that is made in
 * between keeps a mapping that it does not know, and passes it (pass_occupied). A table could not do that. */
static bool extend_reservation(size_t granules) {
  if (!os_reserve_at(pages.base + (state.reserved << GRANULE_SHIFT), granules << GRANULE_SHIFT)) return false;
  state.reserved += granules;
  return true;
}

/* Returns how much of the table stays reserved under a limit. Without addresses of its own, a table could no longer
 * grow once the program maps something behind it, and no granule without the three tables here can be used. */
static size_t reserved_ahead(const struct table *table) {
  size_t which = (size_t)(table - state.tables);
  if (which != RUNS && which != DIRTY && which != PAGEMAP) return 0;
  return min_size(round_up(table->room * state.foreseen / state.coverage, GRANULE), table->room);
}

/* Maps as much of a table as the granules need that are mapped now, or the first `least` bytes. */
static bool reserve_table(struct table *table, size_t least) {
  size_t usual = round_up(table->room / divide_up(state.coverage, state.reserved), GRANULE);
  size_t wanted = state.reserves_on_demand ? reserved_ahead(table) : min_size(usual, table->room);
  return (wanted > least && extend_table(table, wanted)) || extend_table(table, least);
}

static bool table_reach(unsigned which, size_t bytes) {
  struct table *table = &state.tables[which];
  if (bytes <= table->ready) return true;
  size_t ready = table->ready + round_up(bytes - table->ready, max_size(TABLE_STEP, os_page_size));
  if (ready > table->reserved && !reserve_table(table, ready)) return false;
  if (!os_commit(table->start + table->ready, ready - table->ready)) return false;
  table->ready = ready;
  return true;
}

/* The tables grow first, so a granule below the frontier always has its entries. */
static bool tables_reach(size_t granules) {
  return table_reach(RUNS, granules * sizeof(struct run)) &&
         table_reach(DIRTY, divide_up(granules, 64) * 8) &&
         table_reach(PAGEMAP, PAGEMAP_OFFSET + granules * sizeof(pagemap_entry));
}

bool pages_reach_chunk_bits(const struct run *run) {
  lock_take(&pages_lock);
  size_t granules = run_index(run) + 1 - state.first;
  bool done = table_reach(CHUNK_STARTS, granules * CHUNK_STARTS_BYTES) &&
              table_reach(CHUNK_FREED, granules * CHUNK_FREED_BYTES);
  lock_release(&pages_lock);
  return done;
}

bool pages_reach_quarters(const struct run *run) {
  lock_take(&pages_lock);
  bool done = table_reach(QUARTER_RUNS, (run_index(run) + 1) * QUARTERS * sizeof(struct run));
  lock_release(&pages_lock);
  return done;
}

static bool reserve_more(size_t granules) {
  if (state.reserved + granules > state.coverage) return false;
  size_t wanted = min_size(max_size(granules, state.reserved / 2), state.coverage - state.reserved);
  if (state.reserves_on_demand) wanted = granules;
  for (; wanted >= granules; wanted = wanted / 2 >= granules || wanted == granules ? wanted / 2 : granules)
    if (extend_reservation(wanted)) return true;
  return false;
}

/* Unmaps everything beyond the first `used` bytes. Returns the number of bytes. */
static size_t trim(char *start, size_t used, size_t *reserved) {
  size_t tail = *reserved - used;
  if (tail == 0 || !os_unreserve(start + used, tail)) return 0;
  *reserved = used;
  return tail;
}

/* Unmaps what is reserved and not writable, except what the tables keep. Returns the number of bytes. */
static size_t unmap_reserved(void) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  size_t bytes = 0, reserved = max_size(state.reserved, count) << GRANULE_SHIFT; /* see pass_occupied */
  for (struct table *table = state.tables; table < state.tables + TABLES; table++)
    bytes += trim(table->start, max_size(table->ready, min_size(table->reserved, reserved_ahead(table))),
                  &table->reserved);
  bytes += trim(pages.base, count << GRANULE_SHIFT, &reserved);
  state.reserved = reserved >> GRANULE_SHIFT;
  return bytes;
}

/* Caller holds pages_lock. From now on the reservation grows only as far as the writable part does. */
static size_t trim_reservation(void) {
  state.reserves_on_demand = true;
  atomic_store_explicit(&is_limited, true, memory_order_relaxed);
  return unmap_reserved();
}

static void foresee(size_t limit) {
  state.foreseen = state.first + (min_size(limit, USUAL_RESERVATION) >> GRANULE_SHIFT);
}

size_t pages_trim_reservation(size_t limit) {
  lock_take(&pages_lock);
  foresee(limit);
  size_t bytes = trim_reservation();
  lock_release(&pages_lock);
  return bytes;
}

void pages_reserve_tables(size_t limit) {
  lock_take(&pages_lock);
  if (state.reserves_on_demand) foresee(limit);
  for (struct table *table = state.tables; table < state.tables + TABLES; table++)
    if (reserved_ahead(table) > table->reserved) extend_table(table, reserved_ahead(table));
  lock_release(&pages_lock);
}

static struct run *merge(struct run *run, enum run_kind kind);

/* Frees granules that were just made writable. */
static void add_free(size_t g, size_t granules) {
  struct run *run = run_at(g);
  if (os_is_locked(run_start(run))) dirty_set(g, g + granules, true); /* mlockall made them resident */
  run->granules = (uint32_t)granules;
  run->seen = state.tick;
  bin_insert(merge(run, RUN_FREE), RUN_FREE);
}

static bool commit_granules(size_t granules) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  if (count + granules > state.reserved && !reserve_more(count + granules - state.reserved)) return false;
  if (!tables_reach(count + granules)) return false;
  char *start = pages.base + (count << GRANULE_SHIFT);
  if (!os_commit(start, granules << GRANULE_SHIFT)) return false;
  /* Release: a thread that sees the new count sees the entries below it. Pairs with the load in a free's bound check,
   * which the address dependency through a block's pointer orders anyway. */
  __atomic_store_n(&pages.count, count + granules, __ATOMIC_RELEASE);
  add_free(count, granules);
  return true;
}

/* Returns true if the kernel would promise no run of so many granules. It promises none larger than memory and swap
 * (vm.overcommit_memory 0), but would let the library take one, because the library's mappings reserve nothing. */
static bool is_beyond_machine(size_t granules) {
  return UNLIKELY(granules > state.memory) && !os_can_commit(granules << GRANULE_SHIFT);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* Caller holds pages_lock. Each granule that is held counts with its share of the tables. */
static size_t held(void) {
  size_t below = __atomic_load_n(&pages.count, __ATOMIC_RELAXED) - state.first, tables = 0;
  size_t granules = below - state.free_clean - state.unmapped - state.lost;
  size_t gone = atomic_load_explicit(&absent, memory_order_relaxed);
  for (unsigned i = 0; i < TABLES; i++) tables += state.tables[i].ready;
  size_t bytes = granules * (GRANULE + tables / max_size(below, 1));
  return bytes > gone ? bytes - gone : 0;
}

/* Caller holds pages_lock. Returns by how many bytes `more` granules that are clean now would take the library beyond
 * the limit. If `more` is 0, the library takes no memory, so the answer is 0 even beyond the limit. */
static size_t beyond(size_t limit, size_t more) {
  if (LIKELY(limit == SIZE_MAX) || more == 0) return 0;
  size_t would = held() + (more << GRANULE_SHIFT);
  return would > limit ? would - limit : 0;
}

static bool is_bounded(void) {
  return UNLIKELY((atomic_load_explicit(&hard_limit, memory_order_relaxed) &
                   atomic_load_explicit(&soft_limit, memory_order_relaxed)) != SIZE_MAX);
}

/* The library's own tables are exempt, because without them it could not free memory either. */
static size_t limit_for(enum run_kind kind) {
  return kind == RUN_META ? SIZE_MAX : atomic_load_explicit(&hard_limit, memory_order_relaxed);
}

enum pressure { NOT_PRESSED, PRESSED_BY_LIMIT, PRESSED_FOR_ALL };

static void press(unsigned by) {
  if (atomic_load_explicit(&pages_pressure, memory_order_relaxed) < by)
    atomic_store_explicit(&pages_pressure, by, memory_order_relaxed);
}

/* Caller holds pages_lock. Returns true if `more` clean granules would exceed the soft limit, so that the caller should
 * purge free memory first. The scavenger then frees what else it finds. */
static bool should_purge_first(size_t more) {
  if (LIKELY(beyond(atomic_load_explicit(&soft_limit, memory_order_relaxed), more) == 0)) return false;
  press(PRESSED_BY_LIMIT);
  return pages_free_dirty() != 0;
}

#define LIMIT_PIECE (1 * MiB) /* the least to purge, so that a program at its limit makes fewer system calls */
#define LIMIT_TURNS 16        /* tries, since other threads may take the purged memory */

/* Caller holds no lock. Returns true if memory went back, so that another try may succeed. */
static bool purge_for(size_t granules) {
  size_t purged = pages_purge(UINT64_MAX, max_size(granules << GRANULE_SHIFT, LIMIT_PIECE));
  lock_take(&pages_lock);
  state.limit_purged += purged;
  lock_release(&pages_lock);
  return purged != 0;
}

bool pages_purge_own(void *at, size_t bytes) {
  bool done = os_purge(at, bytes);
  pages_count_purge(bytes, done);
  if (done) pages_count_absent(bytes);
  return done;
}

void pages_count_absent(size_t bytes) { atomic_fetch_add_explicit(&absent, bytes, memory_order_relaxed); }
void pages_count_present(size_t bytes) { atomic_fetch_sub_explicit(&absent, bytes, memory_order_relaxed); }

bool pages_may_be_present(size_t bytes) {
  if (!is_bounded()) return true;
  size_t granules = divide_up(bytes, GRANULE);
  bool refuses = pages_limit_refuses(bytes);
  for (unsigned turn = 0; refuses && turn < LIMIT_TURNS && purge_for(granules); turn++)
    refuses = pages_limit_refuses(bytes);
  return !refuses;
}

bool pages_would_exceed(size_t bytes) {
  if (!is_bounded()) return false;
  size_t hard = atomic_load_explicit(&hard_limit, memory_order_relaxed);
  size_t soft = atomic_load_explicit(&soft_limit, memory_order_relaxed);
  lock_take(&pages_lock);
  bool would = beyond(min_size(hard, soft), divide_up(bytes, GRANULE)) != 0;
  lock_release(&pages_lock);
  return would;
}

void pages_set_limits(size_t hard, size_t soft) {
  atomic_store_explicit(&wanted_for_round, 0, memory_order_relaxed);
  atomic_store_explicit(&hard_limit, hard, memory_order_relaxed);
  atomic_store_explicit(&soft_limit, soft, memory_order_relaxed);
}

/* Returns how many granules a block of so many bytes takes, with its guard. */
static size_t granules_with_guard(size_t bytes) { return divide_up(bytes, GRANULE) + (TSLAB_HARDENED ? 1 : 0); }

bool pages_limit_refuses(size_t bytes) {
  size_t granules = granules_with_guard(bytes);
  lock_take(&pages_lock);
  bool refuses = beyond(limit_for(RUN_LARGE), granules) != 0;
  lock_release(&pages_lock);
  return refuses;
}

void pages_count_freed(size_t bytes) { atomic_fetch_add_explicit(&freed_since, bytes, memory_order_relaxed); }
uint32_t pages_round(void) { return atomic_load_explicit(&rounds, memory_order_relaxed); }

/* A round is always due if the kernel refuses memory, and not the limit. */
bool pages_round_is_due(size_t bytes) {
  size_t freed = atomic_load_explicit(&freed_since, memory_order_relaxed);
  return freed >= atomic_load_explicit(&wanted_for_round, memory_order_relaxed) || !pages_limit_refuses(bytes);
}

void pages_begin_round(void) {
  bool is_limited_here = atomic_load_explicit(&hard_limit, memory_order_relaxed) != SIZE_MAX;
  atomic_store_explicit(&pages_counts_freed, is_limited_here, memory_order_relaxed);
  atomic_store_explicit(&freed_since, 0, memory_order_relaxed);
  atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
}

void pages_end_round(size_t bytes) {
  lock_take(&pages_lock);
  size_t limit = atomic_load_explicit(&hard_limit, memory_order_relaxed);
  bool brought = beyond(limit, granules_with_guard(bytes)) <= pages_free_dirty();
  bool brought_much = beyond(limit, limit / LIMIT_REST / GRANULE) <= pages_free_dirty();
  lock_release(&pages_lock);
  size_t before = atomic_load_explicit(&wanted_for_round, memory_order_relaxed);
  size_t next = min_size(max_size(2 * before, GRANULE), limit / LIMIT_REST);
  if (brought) next = brought_much || before <= GRANULE ? 0 : before / 2;
  atomic_store_explicit(&wanted_for_round, next, memory_order_relaxed);
}

void pages_press(void) { press(PRESSED_FOR_ALL); }

bool pages_is_far_beyond(void) {
  lock_take(&pages_lock);
  size_t limit = atomic_load_explicit(&soft_limit, memory_order_relaxed);
  bool is = limit < SIZE_MAX / 2 && beyond(limit + limit / 64, 1) != 0;
  lock_release(&pages_lock);
  return is;
}

size_t pages_relieve(void) {
  unsigned by = atomic_exchange_explicit(&pages_pressure, NOT_PRESSED, memory_order_relaxed);
  lock_take(&pages_lock);
  size_t limit = atomic_load_explicit(&soft_limit, memory_order_relaxed);
  size_t bytes = by == PRESSED_FOR_ALL ? pages_free_dirty() : beyond(limit - limit / 64, 1);
  lock_release(&pages_lock);
  return bytes ? pages_purge(UINT64_MAX, bytes) : 0;
}

/* Returns true if the kernel makes not even the next page writable. Then the process may have as many mappings as the
 * kernel allows (vm.max_map_count). The writable and the reserved part of a table are two mappings, and such a process
 * cannot shift the border. Without the reserved parts it has some mappings left. */
static bool refuses_a_page(void) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  return count < state.reserved && !os_commit(pages.base + (count << GRANULE_SHIFT), os_page_size);
}

/* Returns how many granules to make writable for a request, so that a heap of gigabytes makes few calls. Under a limit
 * on mapped memory these are few: if much is free and mapped, a slow path unmaps it. */
static size_t generous_for(size_t granules) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  size_t most = min_size(COMMIT_STEP_MOST, max_size((pages_mapping_limit() >> GRANULE_SHIFT) / 64, COMMIT_STEP));
  size_t step = min_size(max_size((count - state.first) / 16, COMMIT_STEP), most);
  size_t generous = round_up(max_size(granules, step), COMMIT_STEP);
  return beyond(limit_for(RUN_LARGE), generous) ? granules : generous; /* locked memory is resident at once */
}

static bool advance_frontier(size_t granules) {
  size_t generous = generous_for(granules);
  /* Another process may have set a limit without our notice. Reserved pages still become writable under it, so ask. */
  if (!state.reserves_on_demand && !os_can_reserve(os_page_size)) trim_reservation();
  if (commit_granules(generous) || commit_granules(granules)) return true;
  bool may_help = refuses_a_page();
  if (may_help) state.foreseen = 0;
  if (may_help || state.reserves_on_demand) trim_reservation(); /* unmap what was mapped for it */
  return may_help && commit_granules(granules);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Returns when the oldest dirty granule of a free run became free; a clean run has no age. */
static uint64_t dirty_since(const struct run *run) { return run->dirty ? run->seen : UINT64_MAX; }

static uint64_t older(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Joins `run`, which is neither in a bin nor in use, with the runs of the kind on both sides: RUN_FREE or
 * RUN_UNMAPPED. */
static struct run *merge(struct run *run, enum run_kind kind) {
  size_t g = run_index(run), end = g + run->granules;
  run->dirty = (uint32_t)dirty_count(g, end);
  if (end < __atomic_load_n(&pages.count, __ATOMIC_RELAXED) && is_of_kind(run_at(end), kind)) {
    struct run *after = run_at(end);
    bin_remove(after);
    run->seen = older(dirty_since(run), dirty_since(after));
    run->granules += after->granules;
    run->dirty += after->dirty;
  }
  /* Read only once: in a run in use this word is an epoch's, and other threads write it. */
  uint32_t back = g > state.frozen ? __atomic_load_n(&run_at(g - 1)->back, __ATOMIC_RELAXED) : 0;
  if (g > state.frozen && back <= g - 1 - state.frozen) {
    size_t head = g - 1 - back;
    /* `back` of a granule in use may be stale, so the run that it leads to must end here. */
    if (is_of_kind(run_at(head), kind) && head + run_at(head)->granules == g) {
      struct run *before = run_at(head);
      bin_remove(before);
      before->seen = older(dirty_since(before), dirty_since(run));
      before->granules += run->granules;
      before->dirty += run->dirty;
      run->kind = RUN_NONE;
      run = before;
    }
  }
  return run;
}

static struct run *describe(size_t g, size_t granules, enum run_kind kind) {
  struct run *run = run_at(g);
  uint8_t was = run->was;
  uint32_t back = run->back;
  memset(run, 0, sizeof *run);
  run->granules = (uint32_t)granules;
  run->kind = (uint8_t)kind;
  run->was = was;
  run->back = back;
  return run;
}

/* Gives up a run in use for ever: nothing is mapped there, or something of the program's. */
static void lose(struct run *run) {
  size_t granules = run->granules;
  if (run->moved) state.moved_runs--;
  describe(run_index(run), granules, RUN_META);
  state.lost += granules;
}

void pages_lose(struct run *run) {
  lock_take(&pages_lock);
  lose(run);
  lock_release(&pages_lock);
}

void pages_reuse(struct run *run, enum run_kind kind) {
  lock_take(&pages_lock); /* threads that free a neighbour read its kind */
  describe(run_index(run), run->granules, kind);
  if (kind == RUN_TRAP || kind == RUN_GUARDED)
    pages_count_absent((size_t)run->granules << GRANULE_SHIFT); /* of a quarter: nothing */
  lock_release(&pages_lock);
}

/* Takes [at, at + granules) out of a run that is in no bin, and puts the rest on either side into bins as runs of the
 * kind. Returns how many of the taken granules are dirty. */
static size_t split(struct run *run, size_t at, size_t granules, enum run_kind kind) {
  size_t g = run_index(run), end = g + run->granules;
  size_t all = run->dirty, taken = dirty_count(at, at + granules), before = dirty_count(g, at);
  uint64_t seen = run->seen;
  run->kind = RUN_NONE;
  if (at > g) {
    run->granules = (uint32_t)(at - g);
    run->dirty = (uint32_t)before;
    bin_insert(run, kind);
  }
  if (at + granules < end) {
    struct run *rest = run_at(at + granules);
    rest->granules = (uint32_t)(end - at - granules);
    rest->dirty = (uint32_t)(all - taken - before);
    rest->seen = seen;
    bin_insert(rest, kind);
  }
  return taken;
}

/* Splits the run in the same way and marks the taken granules clean. */
static size_t cut(struct run *run, size_t at, size_t granules) {
  size_t taken = split(run, at, granules, RUN_FREE);
  if (taken) dirty_set(at, at + granules, false); /* do not write to a table of zeros */
  return taken;
}

/* ---- unmapped runs ----------------------------------------------------------------------------------------------- */

/* Maps a piece of an unmapped run and frees it. */
static bool map_piece(struct run *run, size_t at, size_t granules) {
  char *start = pages.base + (at << GRANULE_SHIFT);
  size_t bytes = granules << GRANULE_SHIFT;
  if (!os_reserve_at(start, bytes)) return false;
  if (!os_commit(start, bytes)) {
    os_unreserve(start, bytes);
    return false;
  }
  bin_remove(run);
  split(run, at, granules, RUN_UNMAPPED);
  add_free(at, granules);
  return true;
}

/* Gives up a mebibyte or less of such a place in an unmapped run, for ever. */
static void lose_place(struct run *run, size_t at, size_t granules) {
  while (granules > UNMAPPED_LEAST) {
    size_t half = granules / 2;
    bool is_first = is_occupied(at, half);
    at += is_first ? 0 : half;
    granules = is_first ? half : granules - half;
  }
  if (!is_occupied(at, granules)) return; /* the program has unmapped it meanwhile */
  bin_remove(run);
  split(run, at, granules, RUN_UNMAPPED);
  for (size_t g = at; g < at + granules; g++) run_at(g)->was = 0; /* the program has mapped something there */
  lose(describe(at, granules, RUN_META));
}

/* Maps what a request needs of an unmapped run, the smallest that fits, and perhaps more of it. If a limit refuses the
 * run, this tries one of another bin. */
static bool map_again(size_t granules, size_t alignment) {
  struct run *run;
  unsigned bin = bin_of(granules);
  for (unsigned tries = 0; tries < MAP_TRIES && (bin = next_bin(bin, UNMAPPED, UNMAPPED)) < BINS;) {
    size_t at = find_in_bin(UNMAPPED, bin, granules, alignment, LOOKS, &run);
    size_t most = at ? min_size(run_index(run) + run->granules - at, generous_for(granules)) : 0;
    if (at && (map_piece(run, at, most) || map_piece(run, at, granules))) return true;
    tries += at != 0;
    if (at && is_occupied(at, granules)) lose_place(run, at, granules);
    else bin++;
  }
  return false;
}

/* Unmaps the largest free run without dirty granules. Returns its bytes, or 0 if all are smaller than `least`, many are
 * unmapped already, or the kernel refuses. */
static size_t unmap_largest(size_t least) {
  uint32_t g = largest(CLEAN);
  if (!g || run_at(g)->granules < least || state.unmapped_runs >= UNMAPPED_RUNS) return 0;
  struct run *run = run_at(g);
  size_t bytes = run_bytes(run);
  if (!os_unreserve(run_start(run), bytes)) return 0;
  bin_remove(run);
  bin_insert(merge(run, RUN_UNMAPPED), RUN_UNMAPPED);
  return bytes;
}

/* Lets waiting threads take the lock in between. It leaves alone what they free meanwhile: they may go on for ever. */
static void unmap_clean(size_t least) {
  size_t left = LOAD_RACING(state.free_clean) << GRANULE_SHIFT, bytes;
  do {
    lock_take(&pages_lock);
    bytes = unmap_largest(least);
    lock_release(&pages_lock);
    left -= min_size(left, bytes);
  } while (left != 0 && bytes != 0);
  STORE_RACING(clean_kept, LOAD_RACING(state.free_clean));
}

size_t pages_newly_clean(void) {
  size_t clean = LOAD_RACING(state.free_clean), kept = LOAD_RACING(clean_kept);
  if (clean < kept) STORE_RACING(clean_kept, clean);
  return clean > kept ? (clean - kept) << GRANULE_SHIFT : 0;
}

static void unmap_free(size_t least) {
  pages_purge(UINT64_MAX, pages_free_dirty());
  unmap_clean(least);
}

void pages_unmap_free(void) { unmap_free(UNMAPPED_LEAST); }

bool pages_make_room(size_t bytes) {
  if (bytes > pages_memory() || pages_limit_refuses(bytes)) return false;
  unmap_free(1);
  return true;
}

size_t pages_mapping_limit(void) {
  return min_size(atomic_load_explicit(&mapping_limit, memory_order_relaxed),
                  atomic_load_explicit(&locking_limit, memory_order_relaxed));
}

void pages_count_mapped(size_t limit) {
  if (limit < pages_mapping_limit()) atomic_store_explicit(&mapping_limit, limit, memory_order_relaxed);
  atomic_store_explicit(&pages_mapped_counts, true, memory_order_relaxed);
}

void pages_count_locked(size_t limit) {
  atomic_store_explicit(&locking_limit, limit, memory_order_relaxed);
  atomic_store_explicit(&pages_mapped_counts, true, memory_order_relaxed);
}

void pages_set_mapping_limit(size_t limit) {
  atomic_store_explicit(&mapping_limit, limit, memory_order_relaxed);
  pages_reserve_tables(limit);
}

void pages_unmap_clean(void) {
  if (UNLIKELY(pages_counts_mapped())) unmap_clean(UNMAPPED_LEAST);
}

/* Gives up `step` granules at the frontier, for ever, if the program has mapped something within the next `granules`.
 * The count of granules rises before that of reserved ones: a fork child unmaps what lies between. */
static bool pass_occupied(size_t granules, size_t step) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED), at = state.reserved;
  if (count + granules <= at || max_size(count + granules, at + step) > state.coverage) return false;
  if (!is_occupied(at, count + granules - at)) return false;
  if ((count < at && !commit_granules(at - count)) || !tables_reach(at + step)) return false;
  lose(describe(at, step, RUN_META));
  __atomic_store_n(&pages.count, at + step, __ATOMIC_RELEASE);
  state.reserved = at + step;
  return true;
}

/* Moves the frontier past what the program has mapped there, and makes granules writable behind it. */
static bool advance_beyond(size_t granules) {
  for (size_t step = UNMAPPED_LEAST; pass_occupied(granules, step); step *= 2)
    if (advance_frontier(granules)) return true;
  return false;
}

/* Makes free memory for a request that no free run fits. */
static bool make_place(size_t granules, size_t alignment) {
  size_t most = granules + (alignment >> GRANULE_SHIFT) - 1;
  return map_again(granules, alignment) || advance_frontier(most) || advance_beyond(most);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* A request. is_over: a limit refused it. meets_purge: another thread purged while no memory was found for it. */
struct asked {
  size_t granules, alignment, moves_in;
  enum run_kind kind;
  bool minds_soft_limit, wants_zero, is_over, meets_purge;
};

/* Returns true if the limits let the caller take `more` granules that are clean now. */
static bool admits(struct asked *asked, size_t more) {
  more -= min_size(more, asked->moves_in);
  asked->is_over =
      beyond(limit_for(asked->kind), more) != 0 || (asked->minds_soft_limit && should_purge_first(more));
  return !asked->is_over;
}

/* Before it refuses memory, this looks at every free run of the request's bin. */
static size_t find_or_make_place(struct asked *asked, struct run **found, struct pages_how *how) {
  size_t granules = asked->granules, alignment = asked->alignment;
  size_t at = find_place(granules, alignment, LOOKS, found);
  if (at) return !is_bounded() || admits(asked, granules - dirty_count(at, at + granules)) ? at : 0;
  if (granules >= state.coverage || !admits(asked, granules)) return 0;
  how->mapped = make_place(granules, alignment);
  return find_place(granules, alignment, how->mapped ? LOOKS : SIZE_MAX, found);
}

/* ---- rooms -----------------------------------------------------------------------------------------------------
 * A room is the free granules behind a run that grows, in a window of its own: RUN_META, whose `class` is ROOM. It
 * counts as free memory and hangs in no bin, so no other run takes it. It becomes an ordinary free run if its run did
 * not grow for a while, if the run is freed or shrinks, or if there is no other memory. */

static bool is_room(const struct run *run) { return LOAD_RACING(run->kind) == RUN_META && run->class == ROOM; }

static struct run *room_behind(const struct run *run) {
  size_t end = run_index(run) + run->granules;
  return end < __atomic_load_n(&pages.count, __ATOMIC_RELAXED) && is_room(run_at(end)) ? run_at(end) : NULL;
}

static void room_insert(size_t g, size_t granules) {
  struct run *room = describe(g, granules, RUN_META);
  room->class = ROOM;
  room->seen = state.tick;
  room->dirty = (uint32_t)dirty_count(g, g + granules);
  count_free(room, true);
  room->next = state.newest_room;
  if (room->next) run_at(room->next)->previous = (uint32_t)g;
  else state.oldest_room = (uint32_t)g;
  state.newest_room = (uint32_t)g;
  state.rooms++;
}

static void room_remove(struct run *room) {
  count_free(room, false);
  if (room->next) run_at(room->next)->previous = room->previous;
  else state.oldest_room = room->previous;
  if (room->previous) run_at(room->previous)->next = room->next;
  else state.newest_room = room->next;
  room->next = room->previous = 0;
  room->kind = RUN_NONE;
  room->class = 0;
  state.rooms--;
}

static void room_free(struct run *room) {
  room_remove(room);
  bin_insert(merge(room, RUN_FREE), RUN_FREE);
}

/* Gives the first `granules` of a room to its run. The rest, if any, becomes the new room. */
static void room_take(struct run *room, size_t granules) {
  size_t g = run_index(room), left = room->granules - granules;
  room_remove(room);
  dirty_set(g, g + granules, false);
  if (left != 0) room_insert(g + granules, left);
}

/* Frees at most `most` rooms that did not change since before `tick`. Returns how many. */
static unsigned rooms_expire(uint64_t tick, unsigned most) {
  unsigned count = 0;
  for (; count < most && state.oldest_room && run_at(state.oldest_room)->seen < tick; count++)
    room_free(run_at(state.oldest_room));
  return count;
}

/* The frontier moves for a window only if the clean free memory below it would then be at most the memory in use plus
 * this. */
#define WINDOWS_FREE ((128 * MiB) >> GRANULE_SHIFT)

static bool may_make_window(size_t window) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  size_t used = count - state.first - state.free_clean - state.unmapped;
  bool limited = atomic_load_explicit(&is_limited, memory_order_relaxed);
  return !limited && 2 * window < state.coverage && state.free_clean + window <= WINDOWS_FREE + used;
}

/* ---- runs in use ------------------------------------------------------------------------------------------------- */

static struct run *take(struct asked *asked, bool *zero, struct pages_how *how) {
  struct pages_how here = {.waited = lock_take(&pages_lock)};
  struct run *found = NULL, *run = NULL;
  size_t at = find_or_make_place(asked, &found, &here);
  if (UNLIKELY(!at) && !asked->is_over && rooms_expire(UINT64_MAX, UINT32_MAX) != 0)
    at = find_place(asked->granules, asked->alignment, SIZE_MAX, &found);
  if (at) {
    bin_remove(found);
    size_t dirty = asked->wants_zero ? split(found, at, asked->granules, RUN_FREE) : cut(found, at, asked->granules);
    *zero = dirty == 0;
    run = describe(at, asked->granules, asked->kind);
  }
  asked->meets_purge = !run && state.purging != 0;
  lock_release(&pages_lock);
  if (how) {
    how->mapped |= here.mapped;
    how->waited += here.waited;
  }
  return run;
}

/* The run that another thread purges may be the one that the request needs, so this waits for it. */
static COLD struct run *take_beside_purge(struct asked *asked, bool *zero, struct pages_how *how) {
  struct run *run = NULL;
  for (unsigned rest = 0; asked->meets_purge && !asked->is_over && locks_held == 0 && rest < PURGE_RESTS; rest++) {
    os_rest();
    run = take(asked, zero, how);
  }
  return run;
}

static COLD struct run *take_after_purge(struct asked *asked, bool *zero, struct pages_how *how) {
  struct run *run = NULL;
  for (unsigned turn = 0; !run && asked->is_over && turn < LIMIT_TURNS; turn++) {
    if (!purge_for(asked->granules) && !asked->minds_soft_limit) return NULL;
    asked->minds_soft_limit = false;
    run = take(asked, zero, how);
  }
  return run;
}

/* Marks the first dirty granules of [*from, end) clean, and moves *from behind them. Returns the first; `end`: none. */
static size_t take_dirty(size_t *from, size_t end) {
  lock_take(&pages_lock);
  size_t first = dirty_find(*from, end, true);
  *from = dirty_find(first, end, false);
  dirty_set(first, *from, false);
  lock_release(&pages_lock);
  return first;
}

/* Makes the dirty granules of a run that was just taken read as zero. */
static void zero_dirty(const struct run *run) {
  size_t from = run_index(run), end = from + run->granules, first;
  while ((first = take_dirty(&from, end)) < end) {
    char *start = pages.base + (first << GRANULE_SHIFT);
    size_t granules = from - first;
    if (granules < ZERO_BY_PURGE || !os_purge(start, granules << GRANULE_SHIFT))
      memset(start, 0, granules << GRANULE_SHIFT);
  }
}

struct run *pages_alloc(size_t granules, size_t alignment, enum run_kind kind, bool *zero, struct pages_how *how) {
  struct asked asked = {.granules = granules, .alignment = alignment, .kind = kind, .minds_soft_limit = true};
  if (how) asked.moves_in = how->moves_in, asked.wants_zero = how->wants_zero;
  if (is_beyond_machine(granules - min_size(granules, asked.moves_in))) return NULL;
  struct run *run = take(&asked, zero, how);
  if (UNLIKELY(asked.meets_purge)) run = take_beside_purge(&asked, zero, how);
  if (UNLIKELY(asked.is_over)) run = take_after_purge(&asked, zero, how);
  if (run && asked.wants_zero && !*zero) {
    zero_dirty(run);
    *zero = true;
  }
  return run;
}

struct run *pages_alloc_in_window(size_t granules, size_t window, enum run_kind kind, bool *zero) {
  struct run *found = NULL, *run = NULL;
  size_t alignment = window << GRANULE_SHIFT;
  if (is_beyond_machine(granules)) return NULL;
  lock_take(&pages_lock);
  bool fits = beyond(limit_for(kind), granules) == 0 && !should_purge_first(granules);
  size_t at = fits ? find_place(window, alignment, LOOKS, &found) : 0;
  if (!at && fits && may_make_window(window) && make_place(window, alignment))
    at = find_place(window, alignment, LOOKS, &found);
  if (at) {
    bin_remove(found);
    split(found, at, window, RUN_FREE);
    *zero = dirty_count(at, at + granules) == 0;
    if (!*zero) dirty_set(at, at + granules, false);
    run = describe(at, granules, kind);
    if (window > granules) room_insert(at + granules, window - granules);
  }
  lock_release(&pages_lock);
  return run;
}

/* Purges the entries, `bytes` each, that a table has for granules whose memory went back to the kernel. A page of the
 * table that also holds entries of granules outside `merged` stays. `zero` is where an entry of granule 0 would lie. */
static void return_entries(unsigned which, const void *zero, size_t bytes, const struct run *merged, size_t from,
                           size_t to) {
  const struct table *table = &state.tables[which];
  uintptr_t entries = (uintptr_t)zero, start = run_index(merged), end = start + merged->granules;
  uintptr_t first = max_size(round_down(entries + from * bytes, os_page_size),
                             round_up(entries + start * bytes, os_page_size));
  uintptr_t last = min_size(round_up(entries + to * bytes, os_page_size),
                            round_down(entries + end * bytes, os_page_size));
  last = min_size(last, (uintptr_t)table->start + table->ready);
  if (first < last) os_purge((void *)first, last - first);
}

static void return_chunk_bits(const struct run *merged, size_t from, size_t to) {
  return_entries(CHUNK_STARTS, pages.chunk_starts, CHUNK_STARTS_BYTES, merged, from, to);
  return_entries(CHUNK_FREED, pages.chunk_freed, CHUNK_FREED_BYTES, merged, from, to);
  return_entries(QUARTER_RUNS, state.tables[QUARTER_RUNS].start, QUARTERS * sizeof(struct run), merged, from, to);
}

void *pages_keep(size_t bytes) {
  bool zero;
  struct run *run = pages_alloc(divide_up(bytes, GRANULE), GRANULE, RUN_META, &zero, NULL);
  if (!run) return NULL;
  return zero ? run_start(run) : memset(run_start(run), 0, run_bytes(run));
}

/* The child of a signal handler that forks may empty the cuttings before it goes on here. */
void *pages_cut(struct cuttings *from, size_t bytes) {
  struct cuttings left = *from;
  if (!cuttings_fit(left, bytes)) {
    char *granule = pages_keep(GRANULE);
    if (!granule) return NULL;
    left = (struct cuttings){granule, granule + GRANULE};
  }
  *from = (struct cuttings){left.next + bytes, left.end};
  return left.next;
}

/* The first `clean` granules hold nothing. */
static void free_locked(struct run *run, size_t clean) {
  size_t g = run_index(run), end = g + run->granules;
  struct run *room = room_behind(run);
  if (room) room_free(room);
  if (run->moved) {
    run->moved = false;
    state.moved_runs--;
  }
  if (g + clean < end) dirty_set(g + clean, end, true);
  run->seen = state.tick;
  run = merge(run, RUN_FREE);
  bin_insert(run, RUN_FREE);
  if (g + clean == end) return_chunk_bits(run, g, end);
}

/* Maps granules afresh that moved. If the kernel has no memory for that, kernels before 6.12 leave nothing mapped, and
 * the granules are lost. */
static bool heal(char *at, size_t granules, bool *is_lost) {
  bool done = os_heal(at, granules << GRANULE_SHIFT);
  *is_lost = UNLIKELY(!done) && os_is_unreadable(at);
  return done;
}

/* Frees the granules of the run behind its first `kept`. This maps those that have a mapping of their own afresh, so
 * that they are one mapping with their neighbours again, without advice of the program. The others keep their pages. */
static void free_behind(struct run *run, size_t kept, bool clean) {
  size_t apart = run->moved && run->apart > kept ? run->apart - kept : 0;
  bool is_lost = false, is_healed = !apart || heal(run_start(run) + (kept << GRANULE_SHIFT), apart, &is_lost);
  lock_take(&pages_lock);
  struct run *rest = run;
  if (kept) {
    rest = describe(run_index(run) + kept, run->granules - kept, RUN_NONE);
    run->granules = (uint32_t)kept;
  }
  if (apart && kept) run->apart = kept;
  if (UNLIKELY(is_lost)) {
    size_t granules = rest->granules, at = run_index(rest) + apart;
    rest->granules = (uint32_t)apart;
    lose(rest);
    rest = apart < granules ? describe(at, granules - apart, RUN_NONE) : NULL;
  }
  if (LIKELY(rest != NULL)) free_locked(rest, !is_healed ? 0 : clean ? rest->granules : apart);
  lock_release(&pages_lock);
}

void pages_free(struct run *run, bool clean) {
  if (LIKELY(!pages_is_frozen(run))) free_behind(run, 0, clean);
}

void pages_join(struct run *first, size_t granules) {
  lock_take(&pages_lock);
  for (size_t g = run_index(first) + 1; g < run_index(first) + granules; g++) run_at(g)->kind = RUN_NONE;
  first->granules = (uint32_t)granules;
  lock_release(&pages_lock);
}

/* Returns true if the last run may grow beyond the frontier. It may not if some free run has room for twice its size,
 * because the frontier never moves back. */
static bool may_grow_at_frontier(size_t granules) {
  struct run *found;
  return granules < state.coverage && find_place(2 * granules, GRANULE, LOOKS, &found) == 0;
}

/* The child of a signal handler that forks may come here from a call of its parent. There the run is frozen, and what
 * lies behind it may not be of one piece with what the child adds at its frontier. */
static bool grow_in_place(struct run *run, size_t granules) {
  if (UNLIKELY(pages_is_frozen(run))) return false;
  size_t end = run_index(run) + run->granules, more = granules - run->granules;
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  struct run *after = end < count ? run_at(end) : NULL, *room = room_behind(run);
  if (room && room->granules >= more) {
    room_take(room, more);
    run->granules = (uint32_t)granules;
    return true;
  }
  if (room) room_free(room);
  if (after && !is_free(after)) return false;
  bool at_frontier = !after || end + after->granules == count;
  if (!after || after->granules < more) {
    if (!at_frontier || !may_grow_at_frontier(granules)) return false;
    if (!advance_frontier(more - (after ? after->granules : 0))) return false;
    after = run_at(end);
    if (UNLIKELY(!is_free(after) || after->granules < more)) return false;
  }
  bin_remove(after);
  cut(after, end, more);
  run->granules = (uint32_t)granules;
  return true;
}

static bool grow(struct run *run, size_t granules) {
  struct asked asked = {
      .granules = granules - run->granules, .alignment = GRANULE, .kind = RUN_LARGE, .minds_soft_limit = true};
  bool done = false;
  if (is_beyond_machine(asked.granules)) return false;
  for (unsigned turn = 0; !done && turn < LIMIT_TURNS; turn++) {
    lock_take(&pages_lock);
    done = admits(&asked, asked.granules) && grow_in_place(run, granules);
    lock_release(&pages_lock);
    if (!asked.is_over || (!purge_for(asked.granules) && !asked.minds_soft_limit)) break;
    asked.minds_soft_limit = false;
  }
  return done;
}

bool pages_resize(struct run *run, size_t granules) {
  if (UNLIKELY(pages_is_frozen(run))) return granules <= run->granules;
  if (granules > run->granules) return grow(run, granules);
  if (granules < run->granules) free_behind(run, granules, false);
  return true;
}

/* ---- a move under a limit of addresses --------------------------------------------------------------------------- */

/* Adds unmapped granules at the frontier. */
static bool add_unmapped(size_t granules) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  if (granules > state.coverage - count) return false;
  trim_reservation();
  if (state.reserved != count || is_occupied(count, granules) || !tables_reach(count + granules)) return false;
  __atomic_store_n(&pages.count, count + granules, __ATOMIC_RELEASE);
  state.reserved = count + granules;
  bin_insert(merge(describe(count, granules, RUN_NONE), RUN_UNMAPPED), RUN_UNMAPPED);
  return true;
}

static size_t find_unmapped(size_t granules, struct run **found) {
  size_t at = 0;
  for (unsigned bin = bin_of(granules); !at && (bin = next_bin(bin, UNMAPPED, UNMAPPED)) < BINS; bin++)
    at = find_in_bin(UNMAPPED, bin, granules, GRANULE, LOOKS, found);
  return at;
}

static struct run *put_moved(struct run *run, struct run *found, size_t at, size_t granules) {
  bin_remove(found);
  split(found, at, granules, RUN_UNMAPPED);
  struct run *target = describe(at, granules, RUN_LARGE);
  target->moved = true;
  target->apart = granules;
  state.moved_runs += !run->moved;
  run = describe(run_index(run), run->granules, RUN_NONE);
  bin_insert(merge(run, RUN_UNMAPPED), RUN_UNMAPPED);
  return target;
}

static struct run *move_away(struct run *run, size_t granules) {
  struct run *found, *room = room_behind(run);
  if (room) room_free(room);
  for (unsigned tries = 0; tries < MAP_TRIES; tries++) {
    size_t at = find_unmapped(granules, &found);
    if (!at && add_unmapped(granules)) at = find_unmapped(granules, &found);
    if (!at) return NULL;
    size_t more = (granules - run->granules) << GRANULE_SHIFT;
    bool done = os_move_away(run_start(run), pages.base + (at << GRANULE_SHIFT), run_bytes(run), more);
    if (done) return put_moved(run, found, at, granules);
    if (!is_occupied(at, granules)) return NULL;
    lose_place(found, at, granules);
  }
  return NULL;
}

/* Holds the lock all the time, so that no other thread takes the addresses that a moved piece leaves. */
struct run *pages_move_away(struct run *run, size_t granules) {
  struct run *target = NULL;
  if (granules <= run->granules || pages_is_frozen(run)) return NULL;
  size_t more = granules - run->granules;
  if (is_beyond_machine(more)) return NULL;
  lock_take(&pages_lock);
  bool is_limited_here = state.reserves_on_demand || pages_counts_mapped();
  bool may = is_limited_here && state.moved_runs < MOVED_RUNS_MOST && beyond(limit_for(RUN_LARGE), more) == 0;
  if (may) target = move_away(run, granules);
  lock_release(&pages_lock);
  return target;
}

/* ---- guards ------------------------------------------------------------------------------------------------------ */

/* A guard is RUN_META, so no block lies in it. Its `class` says how it was made. Its `size` is how many bytes before it
 * are guarded, too. */

static _Atomic unsigned mapped_guards;
static _Atomic bool has_heavy_guards;

bool pages_wants_guard(bool many) {
  if (atomic_load_explicit(&is_limited, memory_order_relaxed)) return false;
  return !(many && atomic_load_explicit(&has_heavy_guards, memory_order_relaxed));
}

static char *guarded(const struct run *guard) { return run_start(guard) - guard->size; }

static enum guard arm_as(const struct run *guard) {
  if (os_guard(guarded(guard), guard->size + GRANULE)) return GUARD_LIGHT;
  atomic_store_explicit(&has_heavy_guards, true, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&mapped_guards, 1, memory_order_relaxed) < GUARDS_MOST &&
      os_forbid(guarded(guard), guard->size + GRANULE))
    return GUARD_MAPPED;
  atomic_fetch_sub_explicit(&mapped_guards, 1, memory_order_relaxed);
  return GUARD_APART;
}

static enum guard arm(const struct run *guard) {
  enum guard how = arm_as(guard);
  if (how != GUARD_APART) pages_count_absent(GRANULE);
  return how;
}

static bool disarm_as(const struct run *guard) {
  if (guard->class == GUARD_LIGHT) return os_unguard(guarded(guard), guard->size + GRANULE);
  if (guard->class != GUARD_MAPPED) return true;
  if (!os_commit(guarded(guard), guard->size + GRANULE)) return false;
  atomic_fetch_sub_explicit(&mapped_guards, 1, memory_order_relaxed);
  return true;
}

static bool disarm(const struct run *guard) {
  bool done = disarm_as(guard);
  if (done && (guard->class == GUARD_LIGHT || guard->class == GUARD_MAPPED)) pages_count_present(GRANULE);
  return done;
}

/* Takes the lock because another thread may change the run that lies there instead of a guard. */
static struct run *guard_of(const struct run *run) {
  lock_take(&pages_lock);
  size_t end = run_index(run) + run->granules;
  struct run *guard = end < pages.count ? run_at(end) : NULL;
  if (guard && (guard->kind != RUN_META || guard->class == NO_GUARD || guard->class == ROOM)) guard = NULL;
  lock_release(&pages_lock);
  return guard;
}

void pages_guard(struct run *run, size_t used) {
  lock_take(&pages_lock);
  struct run *guard = describe(run_index(run) + run->granules - 1, 1, RUN_META);
  run->granules--;
  lock_release(&pages_lock);
  guard->size = run_bytes(run) - round_up(used, os_page_size);
  guard->class = (uint8_t)arm(guard);
}

bool pages_has_guard(const struct run *run) { return guard_of(run) != NULL; }

bool pages_unguard(struct run *run) {
  struct run *guard = guard_of(run);
  if (!disarm(guard)) return false;
  lock_take(&pages_lock);
  guard->kind = RUN_NONE;
  run->granules++;
  lock_release(&pages_lock);
  return true;
}

void pages_free_guard(struct run *run) {
  struct run *guard = guard_of(run);
  if (!guard || !disarm(guard)) return;
  bool clean = guard->class == GUARD_LIGHT; /* os_forbid leaves the contents of locked pages */
  guard->class = NO_GUARD;
  pages_free(guard, clean);
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

/* Returns a run that became free before `tick`, or 0. */
static uint32_t purgeable(uint64_t tick) {
  INVARIANT(1, state.tick - tick < AGES || tick > state.tick);
  if (tick > state.tick) return largest(HAS_DIRTY);
  for (uint64_t age = AGES, seen; age > state.tick - tick; age--) {
    seen = state.tick - age;
    uint32_t *first = age == AGES ? &state.ages[AGES] : &state.ages[seen % AGES];
    if (*first) return *first;
  }
  return 0;
}

/* Takes dirty granules, at most `most`, out of a free run. Each time this looks at the bits of what it took before. So
 * it takes a share of the run, and a run of any length takes few times. */
static struct run *take_purgeable(uint64_t tick, size_t most) {
  uint32_t g = purgeable(tick);
  if (!g) return NULL;
  state.looks++;
  struct run *run = run_at(g);
  size_t end = g + run->granules, from = dirty_find(g, end, true);
  most = min_size(most, max_size(PURGE_PIECE, run->granules / PURGE_SHARE));
  size_t to = dirty_find(from, min_size(end, from + most), false);
  bin_remove(run);
  cut(run, from, to - from);
  return describe(from, to - from, RUN_BUSY);
}

/* Gives the memory of a run back piece by piece: meanwhile the kernel lets no thread of the process map memory. */
static bool purge_run(const struct run *run) {
  char *at = run_start(run), *end = at + run_bytes(run);
  for (size_t length; at < end; at += length) {
    length = min_size((size_t)(end - at), PURGE_PIECE << GRANULE_SHIFT);
    if (!os_purge(at, length)) return false;
  }
  return true;
}

size_t pages_purge(uint64_t tick, size_t most) {
  size_t purged = 0;
  lock_take(&pages_lock);
  size_t rooms = state.rooms; /* the bound: other threads may make more rooms meanwhile */
  while (rooms_expire(tick, ROOMS_A_TIME) == ROOMS_A_TIME && rooms > ROOMS_A_TIME) {
    rooms -= ROOMS_A_TIME;
    lock_release(&pages_lock); /* lets waiting threads take the lock */
    lock_take(&pages_lock);
  }
  while (purged < most) {
    struct run *run = take_purgeable(tick, divide_up(most - purged, GRANULE));
    if (!run) break;
    state.purging++;
    lock_release(&pages_lock);
    bool done = purge_run(run);
    lock_take(&pages_lock);
    state.purging -= state.purging != 0; /* 0: this process is a fork child since then */
    state.purge_calls++;
    if (done) state.returned += run_bytes(run), purged += run_bytes(run);
    else state.purge_failures++;
    run->kind = RUN_NONE;
    free_locked(run, done ? run->granules : 0);
    if (!done) break; /* the run stays dirty, and the next tick tries again */
  }
  lock_release(&pages_lock);
  return purged;
}

/* ---- ahead of need ----------------------------------------------------------------------------------------------- */

static _Atomic ptrdiff_t grown; /* granules, since the last pages_populate */
static _Atomic bool cannot_populate;

/* Returns how many granules should be free and resident now; 0 in a small heap. */
static size_t wanted_ahead(void) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  size_t rest = LOAD_RACING(state.free_clean) + LOAD_RACING(state.unmapped) + state.first +
                atomic_load_explicit(&free_dirty, memory_order_relaxed);
  size_t used = count > rest ? count - rest : 0;
  if (used < AHEAD_LEAST_HEAP >> GRANULE_SHIFT) return 0;
  return min_size(used / AHEAD_SHARE, AHEAD_MOST >> GRANULE_SHIFT);
}

void pages_note_growth(ptrdiff_t granules) { atomic_fetch_add_explicit(&grown, granules, memory_order_relaxed); }

bool pages_growth_is_foreseen(void) {
  ptrdiff_t by = atomic_load_explicit(&grown, memory_order_relaxed);
  if (LIKELY(by < (ptrdiff_t)(AHEAD_LEAST_HEAP >> GRANULE_SHIFT) / AHEAD_SHARE / 2) || !options.ahead) return false;
  size_t ahead = wanted_ahead();
  if (ahead == 0 || (size_t)by < ahead / 2) return false;
  if (atomic_load_explicit(&free_dirty, memory_order_relaxed) > ahead / 2) return false;
  return !atomic_load_explicit(&cannot_populate, memory_order_relaxed) &&
         !atomic_load_explicit(&is_limited, memory_order_relaxed);
}

/* Returns the free run that ends at the frontier, or NULL. */
static struct run *last_free_run(void) {
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  uint32_t back = __atomic_load_n(&run_at(count - 1)->back, __ATOMIC_RELAXED);
  if (count == state.frozen || back > count - 1 - state.frozen) return NULL;
  struct run *run = run_at(count - 1 - back);
  return is_free(run) && run->granules == back + 1 ? run : NULL;
}

/* Returns where about `wanted` granules should end, at least half of that, so that the next piece begins on a huge
 * page. */
static size_t end_of_piece(size_t from, size_t wanted) {
  uintptr_t start = (uintptr_t)run_start(run_at(from)), bytes = wanted << GRANULE_SHIFT;
  uintptr_t end = round_down(start + bytes, AHEAD_PIECE);
  if (end < start + bytes / 2) end = round_up(start + bytes, AHEAD_PIECE);
  return granule_of((void *)end);
}

/* Takes about `wanted` clean granules next to the frontier, and moves the frontier if there are too few. */
static struct run *take_clean(size_t wanted) {
  struct run *run = last_free_run();
  size_t most = wanted + (AHEAD_PIECE >> GRANULE_SHIFT);
  if (!run || run->granules - run->dirty < most) {
    advance_frontier(most);
    run = last_free_run();
  }
  if (!run) return NULL;
  size_t end = run_index(run) + run->granules, from = dirty_find(run_index(run), end, false);
  if (from == end) return NULL;
  size_t to = dirty_find(from, min_size(end, end_of_piece(from, wanted)), true);
  bin_remove(run);
  split(run, from, to - from, RUN_FREE);
  return describe(from, to - from, RUN_BUSY);
}

void pages_forget_growth(void) {
  ptrdiff_t by = atomic_load_explicit(&grown, memory_order_relaxed);
  if (by > 0) atomic_fetch_sub_explicit(&grown, by, memory_order_relaxed);
}

static void forget_half_of_shrinking(void) {
  ptrdiff_t by = atomic_load_explicit(&grown, memory_order_relaxed);
  if (by < 0) atomic_fetch_sub_explicit(&grown, by / 2 - 1, memory_order_relaxed);
}

size_t pages_populate(void) {
  bool is_foreseen = pages_growth_is_foreseen();
  pages_forget_growth();
  if (!is_foreseen) return 0;
  lock_take(&pages_lock);
  size_t ahead = wanted_ahead(), dirty = atomic_load_explicit(&free_dirty, memory_order_relaxed);
  bool fits = beyond(limit_for(RUN_LARGE), ahead) == 0 && !should_purge_first(ahead);
  struct run *run = dirty < ahead && fits ? take_clean(ahead - dirty) : NULL;
  lock_release(&pages_lock);
  if (!run) return 0;
  size_t bytes = run_bytes(run);
  bool done = os_populate_huge(run_start(run), bytes);
  if (!done) atomic_store_explicit(&cannot_populate, true, memory_order_relaxed);
  lock_take(&pages_lock);
  if (done) state.populated += bytes;
  run->kind = RUN_NONE;
  free_locked(run, 0);
  lock_release(&pages_lock);
  return done ? bytes : 0;
}

void pages_set_tick(uint64_t tick) {
  forget_half_of_shrinking();
  lock_take(&pages_lock);
  for (uint64_t steps = min_size(tick - state.tick, AGES), i = 1; i <= steps; i++)
    join_ages(&state.ages[AGES], &state.ages[(state.tick + i) % AGES]); /* the runs of AGES ticks before tick + i */
  state.tick = tick;
  lock_release(&pages_lock);
}

void pages_count_purge(size_t bytes, bool done) {
  lock_take(&pages_lock);
  state.purge_calls++;
  if (done) state.returned += bytes;
  else state.purge_failures++;
  lock_release(&pages_lock);
}

size_t pages_free_dirty(void) { return atomic_load_explicit(&free_dirty, memory_order_relaxed) << GRANULE_SHIFT; }

/* ---- start, looking up, totals, check ---------------------------------------------------------------------------- */

/* Returns the size to which a reservation of `data` bytes may grow, where that is up to seven eighths of a limit. */
static size_t most_of(size_t data) {
  return round_down(min_size(3 * data + data / 2, LARGEST_RESERVATION), GRANULE);
}

#define GROWTH 64 /* a reservation that nothing limits may grow to so many times its first size */

/* Returns an address in a part of the address space that nothing else seeks, so that the reservation can grow at its
 * end. On some machines sanitizers have their shadows there, but never where the kernel maps by itself. */
static void *hint(void) {
  if (os_has_sanitizer()) return NULL;
  uintptr_t two_tebibytes = (uintptr_t)1 << 41;
  return (void *)(3 * two_tebibytes + round_down(os_random() % two_tebibytes, 2 * MiB));
}

/* Lays out the tables for so many granules from `at` on; those of chunk bits begin with the first granule that is no
 * table's. Returns where the last table, the pagemap, begins. */
static uintptr_t lay_out(uintptr_t at, size_t granules) {
  state.coverage = granules;
  state.first = state.frozen = divide_up(PAGEMAP_OFFSET + granules * sizeof(pagemap_entry), GRANULE);
  const size_t bytes[TABLES] = {[RUNS] = granules * sizeof(struct run),
                                [QUARTER_RUNS] = granules * QUARTERS * sizeof(struct run),
                                [DIRTY] = granules / 8 + 8,
                                [CHUNK_STARTS] = (granules - state.first) * CHUNK_STARTS_BYTES,
                                [CHUNK_FREED] = (granules - state.first) * CHUNK_FREED_BYTES,
                                [PAGEMAP] = state.first << GRANULE_SHIFT};
  for (unsigned i = 0; i < TABLES; i++) {
    state.tables[i] = (struct table){.start = (char *)at, .room = round_up(bytes[i], GRANULE)};
    at += state.tables[i].room;
  }
  return at - state.tables[PAGEMAP].room;
}

static void unreserve_all(void) {
  size_t data = (state.reserved - state.first) << GRANULE_SHIFT; /* bytes behind the last table */
  trim(state.tables[PAGEMAP].start + state.tables[PAGEMAP].room, 0, &data);
  for (struct table *table = state.tables; table < state.tables + TABLES; table++)
    trim(table->start, 0, &table->reserved);
}

/* Sets the base, the key and the count last. Until then other threads read zeros, and every pointer is foreign. */
static bool begin(void) {
  if (!tables_reach(state.first)) {
    unreserve_all();
    return false;
  }
  state.tick = 1;
  pages.runs = (struct run *)(void *)state.tables[RUNS].start;
  pages.first_quarter = state.tables[RUNS].room / sizeof(struct run);
  pages.chunk_starts = state.tables[CHUNK_STARTS].start - state.first * CHUNK_STARTS_BYTES;
  pages.chunk_freed = state.tables[CHUNK_FREED].start - state.first * CHUNK_FREED_BYTES;
  pages.base = state.tables[PAGEMAP].start;
  pages.key = (uintptr_t)pages.base - KEY_BELOW_BASE;
  __atomic_store_n(&pages.count, state.first, __ATOMIC_RELEASE);
  return true;
}

/* Starts under a limit of address space: maps nothing before it is needed. */
static bool start_on_demand(size_t data) {
  void *at = hint();
  if (!at) return false;
  lay_out((uintptr_t)at, most_of(data) >> GRANULE_SHIFT);
  state.reserves_on_demand = true;
  state.reserved = state.first;
  foresee(pages_mapping_limit());
  return begin();
}

/* Starts without a limit: maps the granules and the last two tables now, and of the other tables, whose places lie
 * before, what they need. */
static bool start_in_place(size_t data) {
  void *at = hint();
  if (!at) return false;
  lay_out((uintptr_t)at, min_size(GROWTH * data, LARGEST_RESERVATION) >> GRANULE_SHIFT);
  struct table *dirty = &state.tables[DIRTY], *pagemap = &state.tables[PAGEMAP];
  state.reserves_on_demand = false;
  state.reserved = state.first;
  if (!os_reserve_at(dirty->start, dirty->room + pagemap->room + data)) return false;
  dirty->reserved = dirty->room;
  pagemap->reserved = pagemap->room;
  state.reserved += data >> GRANULE_SHIFT;
  return begin();
}

/* Maps the whole reservation now, because the kernel chooses the place and may map other things behind it. */
static bool start_at_once(size_t data, size_t coverage) {
  size_t granules = coverage >> GRANULE_SHIFT;
  size_t total = lay_out(0, granules) + data + GRANULE;
  char *start = os_reserve(hint(), total);
  if (!start) return false;
  char *aligned = (char *)round_up((uintptr_t)start, GRANULE);
  if (aligned > start) os_unreserve(start, (size_t)(aligned - start));
  uintptr_t base = lay_out((uintptr_t)aligned, granules);
  for (struct table *table = state.tables; table < state.tables + TABLES; table++) table->reserved = table->room;
  state.reserves_on_demand = false;
  state.reserved = min_size(((uintptr_t)start + total - base) >> GRANULE_SHIFT, granules);
  char *end = (char *)base + (state.reserved << GRANULE_SHIFT);
  if (end < start + total) os_unreserve(end, (size_t)(start + total - end)); /* it is in the way of growth */
  return begin();
}

bool pages_start(void) {
  size_t limit = os_address_space_limit(), memory = os_physical_memory();
  size_t usual = (size_t)4 << log2_floor(max_size(memory, USUAL_RESERVATION / 4));
  state.memory = memory ? memory >> GRANULE_SHIFT : SIZE_MAX; /* a filter may hide it */
  size_t data = min_size(usual, LARGEST_RESERVATION);
  bool limited = limit != SIZE_MAX, is_data_limited = os_data_is_limited();
  if (limited || is_data_limited) pages_count_mapped(limit);
  atomic_store_explicit(&is_limited, limited || (TSLAB_HARDENED && is_data_limited), memory_order_relaxed);
  if (limited ? start_on_demand(data) : start_in_place(data)) return true;
  data = round_down(min_size(data, limit / 4), GRANULE);
  for (; data >= SMALLEST_RESERVATION; data = round_down(data / 2, GRANULE))
    if (start_at_once(data, limited ? data : most_of(data))) return true;
  return false;
}

size_t pages_freeze(bool may_unmap) {
  state.foreseen = 0; /* another thread may have been mapping them, too */
  if (may_unmap) unmap_reserved();
  state.frozen = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  pages_count_absent((state.free_clean + state.unmapped) << GRANULE_SHIFT);
  state.free_clean = state.unmapped = state.unmapped_runs = 0;
  atomic_store_explicit(&free_dirty, 0, memory_order_relaxed);
  memset(state.bins, 0, sizeof state.bins);
  memset(state.occupied, 0, sizeof state.occupied);
  memset(state.ages, 0, sizeof state.ages);
  state.newest_room = state.oldest_room = 0;
  state.rooms = 0;
  return (state.frozen - state.first) << GRANULE_SHIFT;
}

void pages_forget_purges(void) { state.purging = 0; }

bool pages_is_frozen(const struct run *run) {
  lock_look(); /* a fork child may find out here that it is one */
  size_t g = run_index(run);
  return (g < pages.first_quarter ? g : quarter_granule(run)) < state.frozen;
}

struct run *pages_run_of(const void *p) {
  size_t g = granule_of(p);
  if (g >= __atomic_load_n(&pages.count, __ATOMIC_ACQUIRE) || g < state.first) return NULL;
  while (g > state.first && run_at(g)->kind == RUN_NONE) g--;
  if (UNLIKELY(run_at(g)->kind == RUN_SPLIT)) return quarter_of(p);
  return run_at(g)->kind == RUN_NONE ? NULL : run_at(g);
}

static bool is_without_blocks(const struct run *run) {
  unsigned kind = run->kind;
  return kind == RUN_FREE || kind == RUN_BUSY || kind == RUN_RESERVED || kind == RUN_UNMAPPED || kind == RUN_META;
}

struct pages_found pages_find_to_report(const void *p) {
  bool may_wait = locks_held == 0;
  if (may_wait) lock_take(&pages_lock);
  struct pages_found found = {.run = pages_run_of(p)};
  found.has_no_block = found.run && is_without_blocks(found.run);
  if (found.has_no_block) found.was = run_is_quarter(found.run) ? found.run->was : run_at(granule_of(p))->was;
  if (may_wait) lock_release(&pages_lock);
  return found;
}

struct run *pages_first_run(void) {
  return state.frozen < __atomic_load_n(&pages.count, __ATOMIC_RELAXED) ? run_at(state.frozen) : NULL;
}

struct run *pages_next_run(struct run *run) {
  size_t next = run_index(run) + run->granules;
  return next < __atomic_load_n(&pages.count, __ATOMIC_RELAXED) ? run_at(next) : NULL;
}

size_t pages_memory(void) { return min_size(state.memory, state.coverage) << GRANULE_SHIFT; }

size_t pages_most(void) { return state.coverage << GRANULE_SHIFT; }

struct pages_totals pages_totals(void) {
  lock_take(&pages_lock);
  size_t gone = state.first + state.unmapped + state.lost, reserved = (state.reserved - gone) << GRANULE_SHIFT;
  for (unsigned i = 0; i < TABLES; i++) reserved += state.tables[i].reserved;
  struct pages_totals totals = {
      .reserved = reserved,
      .committed = (__atomic_load_n(&pages.count, __ATOMIC_RELAXED) - gone) << GRANULE_SHIFT,
      .free_dirty = pages_free_dirty(),
      .free_clean = state.free_clean << GRANULE_SHIFT,
      .returned = state.returned,
      .purge_calls = state.purge_calls,
      .purge_failures = state.purge_failures,
      .moved_runs = state.moved_runs,
      .populated = state.populated,
      .held = held(),
      .limit_purged = state.limit_purged,
      .hard_limit = atomic_load_explicit(&hard_limit, memory_order_relaxed),
      .soft_limit = atomic_load_explicit(&soft_limit, memory_order_relaxed),
      .looks = state.looks,
  };
  lock_release(&pages_lock);
  return totals;
}

bool pages_may_move(struct run *run, size_t bytes) {
  lock_take(&pages_lock);
  bool may = state.moved_runs < MOVED_RUNS_MOST;
  if (may && !run->moved) {
    run->moved = true;
    run->apart = 0;
    state.moved_runs++;
  }
  if (may) run->apart = max_size(run->apart, divide_up(bytes, GRANULE));
  lock_release(&pages_lock);
  return may;
}

static size_t count_aged(void) {
  size_t count = 0;
  for (uint32_t *first = state.ages; first < state.ages + AGES + 1; first++)
    for (uint32_t g = *first; g; g = run_at(g)->younger == *first ? 0 : run_at(g)->younger, count++)
      INVARIANT(0, run_at(g)->kind == RUN_FREE && run_at(g)->dirty && age_of(run_at(g)->seen) == first);
  return count;
}

static bool is_in_bin(const struct run *run) { return run->kind == RUN_FREE || run->kind == RUN_UNMAPPED; }

void pages_check(void) {
  lock_take(&pages_lock);
  size_t clean = 0, dirty = 0, unmapped = 0, unmapped_runs = 0, aged = 0;
  size_t count = __atomic_load_n(&pages.count, __ATOMIC_RELAXED);
  const struct run *last = NULL;
  for (size_t g = state.frozen; g < count; g += run_at(g)->granules) {
    struct run *run = run_at(g);
    INVARIANT(0, run->kind != RUN_NONE && run->granules > 0 && g + run->granules <= count);
    INVARIANT(0, !(last && is_in_bin(last) && last->kind == run->kind));
    last = run;
    if (!is_in_bin(run) && !is_room(run)) continue;
    INVARIANT(0, run->dirty == dirty_count(g, g + run->granules));
    INVARIANT(0, !is_in_bin(run) || run_at(g + run->granules - 1)->back == run->granules - 1);
    if (run->kind == RUN_UNMAPPED) unmapped += run->granules, unmapped_runs++;
    else dirty += run->dirty, clean += run->granules - run->dirty;
    aged += run->kind == RUN_FREE && run->dirty != 0;
  }
  INVARIANT(0, dirty << GRANULE_SHIFT == pages_free_dirty() && clean == state.free_clean && aged == count_aged());
  INVARIANT(0, unmapped == state.unmapped && unmapped_runs == state.unmapped_runs);
  lock_release(&pages_lock);
}
