/* chunk: see chunk.h.                                                                               floor: slab */
#include "slab/chunk.h"

#include <limits.h>

#include "slab/reserve.h"

struct run *chunk_new(uint32_t epoch, struct pages_how *how) {
  bool zero;
  struct run *run = reserve_take(RUN_RESERVED);
  if (run && how) how->ready = true;
  if (!run) run = pages_alloc(1, GRANULE, RUN_RESERVED, &zero, how);
  if (!run) return NULL;
  if (!pages_reach_chunk_bits(run)) {
    pages_free(run, false);
    return NULL;
  }
  run->epoch = epoch;
  chunk_begin(chunk_starts(run));
  __atomic_store_n(&run->kind, RUN_CHUNK, __ATOMIC_RELEASE); /* its bits can be read now: malloc/occupancy.c */
  return run;
}

/* Atomic, because any thread may read the bits at any time. */
INLINE uint64_t load(const uint64_t *bits) { return __atomic_load_n(bits, __ATOMIC_RELAXED); }

INLINE bool starts(const struct run *run, size_t offset) {
  return load(&chunk_starts(run)[chunk_word(offset)].word) & chunk_bit(offset);
}

/* Acquire: the scavenger purges what it finds free, and the heap's thread puts other blocks there. */
INLINE uint64_t load_remote(const struct chunk_freed *freed) {
  return __atomic_load_n(&freed->remote, __ATOMIC_ACQUIRE);
}

INLINE bool is_freed(const struct run *run, size_t offset) {
  const struct chunk_freed *freed = &chunk_freed(run)[chunk_word(offset)];
  return (load(&freed->local) | load_remote(freed)) & chunk_bit(offset);
}

/* Returns the offset of the first start bit at or after `from`, or the chunk's bytes if there is none. */
INLINE size_t next_start(const struct run *run, size_t from) {
  size_t end = run_bytes(run);
  if (from >= end) return end;
  const struct chunk_starts *starts = chunk_starts(run);
  size_t at = chunk_word(from);
  uint64_t word = load(&starts[at].word) & ~(chunk_bit(from) - 1);
  while (!word) {
    if (++at == chunk_word(end - 1) + 1) return end;
    word = load(&starts[at].word);
  }
  return (at * 64 + lowest_bit(word)) * CHUNK_UNIT;
}

static size_t offset_in(const struct run *run, const void *p) { return (size_t)((const char *)p - chunk_start(run)); }

/* Returns the offset where the hole ends that the chunk's heap fills; 0: there is none. */
static size_t hole_end(const struct run *run) {
  return LOAD_RACING(run->class) == CHUNK_HAS_HOLE ? LOAD_RACING(run->next) : 0;
}

/* Returns true if no block in use starts at `at`, where a block or a gap starts. It ends at `next`. */
static bool is_free(const struct run *run, size_t at, size_t next) {
  return is_freed(run, at) || next == hole_end(run);
}

enum chunk_place chunk_place_of(const struct run *run, const void *p) {
  size_t offset = offset_in(run, p), next = next_start(run, round_down(offset, CHUNK_UNIT) + CHUNK_UNIT);
  if (next == run_bytes(run)) return CHUNK_NOWHERE;
  if (offset % CHUNK_UNIT != 0 || !starts(run, offset)) return CHUNK_INTERIOR;
  return is_free(run, offset, next) ? CHUNK_FREED : CHUNK_LIVE;
}

size_t chunk_size_of(const struct run *run, const void *p) {
  size_t offset = offset_in(run, p);
  return next_start(run, offset + CHUNK_UNIT) - offset;
}

void *chunk_block_of(const struct run *run, const void *p) {
  size_t at = round_down(offset_in(run, p), CHUNK_UNIT);
  if (next_start(run, at + CHUNK_UNIT) == run_bytes(run)) return NULL;
  while (!starts(run, at)) at -= CHUNK_UNIT;
  return chunk_start(run) + at;
}

bool chunk_mark_freed(struct run *run, const void *p) {
  size_t offset = offset_in(run, p);
  struct chunk_freed *freed = &chunk_freed(run)[chunk_word(offset)];
  uint64_t bit = chunk_bit(offset), before = __atomic_fetch_or(&freed->remote, bit, __ATOMIC_RELEASE);
  return !((before | __atomic_load_n(&freed->local, __ATOMIC_RELAXED)) & bit);
}

void chunk_skip(struct run *run, const char *from, const char *to) {
  size_t old = offset_in(run, from), new = offset_in(run, to);
  chunk_set(&chunk_starts(run)[chunk_word(new)].word, chunk_bit(new));
  chunk_set(&chunk_freed(run)[chunk_word(old)].local, chunk_bit(old));
  chunk_note_gaps(run);
}

void chunk_each_live(const struct run *run, void (*visit)(void *, size_t, void *), void *argument) {
  for (size_t at = 0, next; (next = next_start(run, at + CHUNK_UNIT)) != run_bytes(run); at = next)
    if (!is_free(run, at, next)) visit(chunk_start(run) + at, next - at, argument);
}

/* ---- holes ------------------------------------------------------------------------------------------------------- */

/* Returns the offset of the first freed block at or after `from`, or the chunk's bytes if there is none. */
static size_t next_freed(const struct run *run, size_t from) {
  const struct chunk_freed *freed = chunk_freed(run);
  size_t last = chunk_word(run_bytes(run) - 1);
  uint64_t mask = ~(chunk_bit(from) - 1);
  for (size_t i = chunk_word(from); i <= last; i++, mask = UINT64_MAX) {
    uint64_t bits = (load(&freed[i].local) | load_remote(&freed[i])) & mask;
    if (bits) return (i * 64 + lowest_bit(bits)) * CHUNK_UNIT;
  }
  return run_bytes(run);
}

bool chunk_find_hole(const struct run *run, size_t from, size_t least, struct chunk_hole *hole) {
  for (size_t end = run_bytes(run); (from = next_freed(run, from)) != end; from = hole->to) {
    *hole = (struct chunk_hole){from, from};
    do hole->to = next_start(run, hole->to + CHUNK_UNIT);
    while (hole->to != end && is_freed(run, hole->to)); /* the end: another thread retires the chunk just now */
    if (hole->to == end) return false;
    if (hole->to - from >= least) return true;
  }
  return false;
}

/* Blocks that other threads freed first become blocks that this thread freed, and the start bits go before those. The
 * word comes before the bits: a fork child in between finds too many live blocks and never too few. If a thread has
 * marked a block freed and not counted it yet, the word is one too high until then. */
static uint32_t open_word(struct run *run, size_t word, uint64_t starts, uint64_t freed) {
  struct chunk_freed *bits = &chunk_freed(run)[word];
  uint64_t remote = load(&bits->remote) & freed;
  uint32_t by_others = (uint32_t)__builtin_popcountll(remote);
  if (UNLIKELY(remote != 0)) {
    atomic_fetch_add_explicit(&run->word, by_others, memory_order_relaxed);
    chunk_set(&bits->local, remote);
    __atomic_fetch_and(&bits->remote, ~remote, __ATOMIC_RELAXED);
  }
  chunk_unset(&chunk_starts(run)[word].word, starts);
  chunk_unset(&bits->local, freed);
  return by_others;
}

/* Opens the first word last, so that the child finds the hole's rest by the last start bit before the hole's end. */
uint32_t chunk_open_hole(struct run *run, struct chunk_hole hole) {
  uint32_t by_others = 0;
  STORE_RACING(run->next, (uint32_t)hole.to);
  STORE_RACING(run->class, CHUNK_HAS_HOLE);
  size_t first = chunk_word(hole.from), last = chunk_word(hole.to - CHUNK_UNIT);
  for (size_t i = last + 1; i-- > first;) {
    uint64_t in = i == first ? ~(chunk_bit(hole.from) - 1) : UINT64_MAX;
    if (i == last) in &= UINT64_MAX >> (63 - chunk_shift(hole.to - CHUNK_UNIT));
    by_others += open_word(run, i, i == first ? in & ~chunk_bit(hole.from) : in, in);
  }
  return by_others;
}

void chunk_close_hole(struct run *run, const char *at) {
  size_t rest = offset_in(run, at);
  chunk_set(&chunk_freed(run)[chunk_word(rest)].local, chunk_bit(rest));
  STORE_RACING(run->class, CHUNK_HAS_GAPS);
  STORE_RACING(run->next, 0);
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

/* Returns true if a block that the thread did not free starts behind `at` and before the last start bit before `to`. It
 * is in use, or the word counts it as freed. */
static bool has_blocks_behind(const struct run *run, size_t at, size_t to) {
  size_t from = next_start(run, at + CHUNK_UNIT), next;
  for (; from < to && (next = next_start(run, from + CHUNK_UNIT)) < to; from = next)
    if (!(load(&chunk_freed(run)[chunk_word(from)].local) & chunk_bit(from))) return true;
  return false;
}

/* Marks what starts in the rest of a hole free. The word counts what other threads freed. */
static void free_rest(struct run *run, size_t rest, size_t to) {
  for (; rest < to; rest = next_start(run, rest + CHUNK_UNIT))
    if (!is_freed(run, rest)) chunk_set(&chunk_freed(run)[chunk_word(rest)].local, chunk_bit(rest));
}

/* Returns the offset of the last start bit before `to`, or 0 if there is none. */
static size_t start_before(const struct run *run, size_t to) {
  uint64_t mask = UINT64_MAX >> (63 - chunk_shift(to - CHUNK_UNIT));
  for (size_t word = chunk_word(to - CHUNK_UNIT) + 1; word-- > 0; mask = UINT64_MAX) {
    uint64_t bits = load(&chunk_starts(run)[word].word) & mask;
    if (bits) return (word * 64 + log2_floor(bits)) * CHUNK_UNIT;
  }
  return 0;
}

/* Returns the offset where the next block would start, or in a chunk with a hole, which has none, the end: that of `at`
 * if that can be, otherwise that of the last start bit. The thread may have been about to close the hole in which `at`
 * lies, or to open it, so that the chunk does not say that it has one. */
static size_t settle_end(struct run *run, const char *at) {
  size_t place = at ? offset_in(run, at) : 0, hole = hole_end(run), bytes = run_bytes(run);
  bool may_be = at && place < bytes && place % CHUNK_UNIT == 0 && starts(run, place);
  bool has_behind = may_be && has_blocks_behind(run, place, hole ? hole : bytes);
  if (hole) free_rest(run, may_be && place < hole && !has_behind ? place : start_before(run, hole), hole);
  else if (has_behind) free_rest(run, place, place + CHUNK_UNIT);
  return may_be && !hole && !has_behind ? place : start_before(run, bytes);
}

/* Writes only what differs: the page is the parent's, too. */
static void set_bits(uint64_t *word, uint64_t bits) {
  if (load(word) != bits) __atomic_store_n(word, bits, __ATOMIC_RELAXED);
}

unsigned chunk_settle(struct run *run, const char *at, unsigned *kept) {
  size_t end = settle_end(run, at);
  unsigned count = 0;
  *kept = 0;
  for (size_t i = 0; i <= chunk_word(run_bytes(run) - 1); i++) {
    uint64_t *start = &chunk_starts(run)[i].word;
    struct chunk_freed *freed = &chunk_freed(run)[i];
    uint64_t mark = i == chunk_word(end) ? chunk_bit(end) : 0;
    uint64_t below = i < chunk_word(end) ? UINT64_MAX : mark - (mark != 0);
    uint64_t blocks = load(start) & below, local = load(&freed->local);
    if (i == 0 && !(blocks & 1) && end != 0) { /* the thread was emptying the chunk: a gap takes the blocks' place */
      blocks |= 1;
      local |= 1;
    }
    set_bits(start, blocks | mark);
    set_bits(&freed->local, local & blocks);
    set_bits(&freed->remote, load(&freed->remote) & blocks);
    count += (unsigned)__builtin_popcountll(blocks);
    *kept += (unsigned)__builtin_popcountll(blocks & ~local);
  }
  return count;
}

static void count_one(void *block, size_t size, void *argument) {
  (void)block;
  struct chunk_live *live = argument;
  live->blocks++;
  live->bytes += size;
}

struct chunk_live chunk_live(const struct run *run) { return chunk_live_of_first(run, UINT_MAX); }

/* A chunk of which nothing was freed takes one load. */
struct chunk_live chunk_live_of_first(const struct run *run, unsigned most) {
  struct chunk_live live = {0, 0};
  if (chunk_is_full_of_live(run)) return (struct chunk_live){LOAD_RACING(run->capacity), LOAD_RACING(run->size)};
  if (LOAD_RACING(run->class)) most = UINT_MAX; /* a gap before an aligned block starts like a block */
  for (size_t at = 0, next; most-- > 0 && (next = next_start(run, at + CHUNK_UNIT)) != run_bytes(run); at = next)
    if (!is_free(run, at, next)) count_one(NULL, next - at, &live);
  return live;
}
