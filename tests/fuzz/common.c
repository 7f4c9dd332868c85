/* common.c: functions of every fuzzer; see fuzz.h. */
#include "fuzz.h"

#include "../stress/shadow.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* CHECK ends the process through this, so that the fuzzer keeps the input. */
__attribute__((noreturn)) void fuzz_exit(int status);
void fuzz_exit(int status) {
  (void)status;
  abort();
}

/* Finding a use after return takes a heap for stacks, and time that is better spent on inputs. The sanitizer does not
 * know our memory: nothing of it is a leak, and what the fuzzer itself frees need not be held back for long. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "detect_stack_use_after_return=0:detect_leaks=0:quarantine_size_mb=4";
}

/* ---- the last inputs --------------------------------------------------------------------------------------------- */

/* The heap lives on from input to input. When a finding does not come again by itself, it comes by those before it:
 * they are kept in the file that FUZZ_HISTORY names, a ring, the next place in front. */
enum { REMEMBERED = 256 };
struct history {
  uint64_t next;
  struct {
    uint64_t size;
    uint8_t data[INPUT_MOST];
  } inputs[REMEMBERED];
};

static struct history *open_history(const char *path) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(file >= 0 && ftruncate(file, sizeof(struct history)) == 0);
  void *const history = mmap(NULL, sizeof(struct history), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(history != MAP_FAILED);
  close(file);
  return history;
}

void fuzz_remember(const uint8_t *data, size_t size) {
  static struct history *history;
  const char *const path = getenv("FUZZ_HISTORY");
  if (!path || size > INPUT_MOST) return;
  if (!history) history = open_history(path);
  const uint64_t at = history->next++ % REMEMBERED;
  history->inputs[at].size = size;
  memcpy(history->inputs[at].data, data, size);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

struct block slots[SLOTS];
struct pile piles[PILES];
_Atomic uint64_t blocks_made, blocks_gone, bytes_live;

size_t fuzz_size(uint8_t a, uint8_t b) {
  const size_t shifted = (size_t)b << (a & 15) % 13, offset = a >> 4;
  return offset < 8 ? shifted + offset : shifted > 16 - offset ? shifted - (16 - offset) : 0;
}

static uint64_t next_seed(void) {
  static _Atomic uint64_t seeds = 1;
  return atomic_fetch_add_explicit(&seeds, 1, memory_order_relaxed) * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

/* The whole of a small block; of a larger one both ends, and a word of each page. */
enum { WHOLE = 4096, END = 256, STRIDE = 4096 - 40 }; /* multiples of 8, as usable sizes are */

static void fill_range(unsigned char *start, size_t from, size_t to, uint64_t seed) {
  size_t i = from;
  for (; i + 8 <= to; i += 8) memcpy(start + i, &seed, 8);
  memcpy(start + i, &seed, to - i);
}

/* `from` is a multiple of 8. */
static void verify_range(unsigned char *start, size_t from, size_t to, uint64_t seed) {
  size_t i = from;
  uint64_t word;
  for (; i + 8 <= to; i += 8) {
    memcpy(&word, start + i, 8);
    if (word != seed) break;
  }
  if (i + 8 > to && memcmp(start + i, &seed, to - i) == 0) return;
  memcpy(&word, start + i, to - i < 8 ? to - i : 8);
  dprintf(2, "bytes %zu.. of the block at %p, from %zu to %zu, are %#llx and not %#llx\n", i, (void *)start, from, to,
          (unsigned long long)word, (unsigned long long)seed);
  CHECK(!"a block holds what was written to it");
}

static void each_range(unsigned char *start, size_t size, uint64_t seed,
                       void (*visit)(unsigned char *, size_t, size_t, uint64_t)) {
  if (size <= WHOLE) {
    visit(start, 0, size, seed);
    return;
  }
  visit(start, 0, END, seed);
  for (size_t i = STRIDE; i + 8 < size - END; i += STRIDE) visit(start, i, i + 8, seed);
  visit(start, size - END, size, seed);
}

/* Shadow and contents: from here on nobody else may have any of its bytes. */
static void claim(struct block *b, size_t alignment) {
  CHECK(b->start != NULL);
  CHECK_COUNT((uintptr_t)b->start % alignment, ==, 0);
  b->usable = tslab_malloc_usable_size(b->start);
  CHECK_COUNT(b->usable, >=, b->size);
  CHECK(tslab_owns(b->start));
  shadow_claim(b->start, b->usable);
  each_range(b->start, b->usable, b->seed, fill_range);
  atomic_fetch_add_explicit(&bytes_live, b->usable, memory_order_relaxed);
}

void block_unclaim(struct block *b) {
  shadow_release(b->start, b->usable);
  atomic_fetch_sub_explicit(&bytes_live, b->usable, memory_order_relaxed);
}

struct block block_new(void *start, size_t size, size_t alignment, int epoch) {
  struct block b = {.start = start, .size = size, .seed = next_seed(), .epoch = epoch};
  claim(&b, alignment < 16 ? 16 : alignment);
  atomic_fetch_add_explicit(&blocks_made, 1, memory_order_relaxed);
  return b;
}

void block_reclaim(struct block *b) {
  each_range(b->start, b->usable, b->seed, verify_range);
  claim(b, 16);
}

void block_lose(struct block *b) {
  block_unclaim(b);
  atomic_fetch_add_explicit(&blocks_gone, 1, memory_order_relaxed);
  b->start = NULL;
}

void block_forget(struct block *b) {
  CHECK_COUNT(tslab_malloc_usable_size(b->start), ==, b->usable);
  each_range(b->start, b->usable, b->seed, verify_range);
  block_lose(b);
}

void block_free(struct block *b, bool sized) {
  void *const start = b->start;
  if (!start) return;
  block_forget(b);
  errno = 77;
  if (sized) tslab_free_sized(start, b->size);
  else tslab_free(start);
  CHECK_COUNT(errno, ==, 77);
}

/* After realloc, of what was filled: all that the new block has of it. */
static void verify_kept(unsigned char *start, const struct block *old, size_t size) {
  const size_t kept = size < old->usable ? size : old->usable;
  if (old->usable <= WHOLE) {
    verify_range(start, 0, kept, old->seed);
    return;
  }
  verify_range(start, 0, kept < END ? kept : END, old->seed);
  for (size_t i = STRIDE; i + 8 < old->usable - END && i + 8 <= kept; i += STRIDE)
    verify_range(start, i, i + 8, old->seed);
  if (kept == old->usable) verify_range(start, kept - END, kept, old->seed);
}

/* Once realloc is called, the old place may be another thread's before the call returns. */
bool block_resize(struct block *b, size_t size, size_t unit) {
  struct block old = *b;
  block_unclaim(b);
  void *const start = unit ? tslab_reallocarray(old.start, size / unit, unit) : tslab_realloc(old.start, size);
  b->size = start ? size : old.size;
  b->start = start ? start : old.start;
  verify_kept(b->start, &old, start ? size : old.usable);
  if (start && start != old.start) { /* else no block came or went */
    atomic_fetch_add_explicit(&blocks_made, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&blocks_gone, 1, memory_order_relaxed);
  }
  claim(b, 16);
  return start != NULL;
}

void check_zero(const unsigned char *start, size_t size) {
  CHECK(size == 0 || (start[0] == 0 && memcmp(start, start + 1, size - 1) == 0));
}

struct block *pile_at(struct pile *pile, unsigned i) { return &pile->blocks[(pile->first + i) % PILE_MOST]; }

struct block *pile_next(struct pile *pile) {
  return pile->count < PILE_MOST ? pile_at(pile, pile->count++) : NULL;
}

struct block *pile_take(struct pile *pile, bool oldest) {
  if (pile->count == 0) return NULL;
  struct block *const b = pile_at(pile, oldest ? 0 : pile->count - 1);
  pile->first = (pile->first + oldest) % PILE_MOST;
  pile->count--;
  return b;
}

static struct {
  struct block block;
  _Atomic int state; /* 0 empty, 1 being filled or emptied, 2 full */
} mail[THREADS];

bool mail_send(struct block *b, unsigned to) {
  int empty = 0;
  if (!b->start || !atomic_compare_exchange_strong(&mail[to].state, &empty, 1)) return false;
  mail[to].block = *b;
  b->start = NULL;
  atomic_store(&mail[to].state, 2);
  return true;
}

bool mail_receive(unsigned thread, struct block *b) {
  int full = 2;
  if (!atomic_compare_exchange_strong(&mail[thread].state, &full, 1)) return false;
  *b = mail[thread].block;
  atomic_store(&mail[thread].state, 0);
  return true;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

static void check_classes(const tslab_stats_global *all) {
  tslab_class_stats row;
  uint64_t live = 0, cached = 0;
  for (unsigned i = 0; tslab_stats_class(i, &row, sizeof row) == 0; i++) {
    CHECK_COUNT(row.allocations, ==, row.frees + row.live_blocks);
    CHECK_COUNT(row.live_bytes, ==, row.live_blocks * row.object_size);
    CHECK_COUNT(row.slabs, ==, row.slabs_born - row.slabs_retired);
    CHECK_COUNT(row.allocations, ==, row.from_list + row.from_magazine + row.from_slab + row.from_remote +
                row.from_fresh + row.from_adopted + row.from_reserve + row.from_run + row.from_map);
    live += row.live_blocks;
    cached += row.cached_blocks;
  }
  CHECK_COUNT(live + all->large_live_blocks, <=, all->live_blocks); /* those in chunks are of no class */
  /* Meanwhile the scavenger may have emptied lists of threads at rest. */
  tslab_stats_global after;
  CHECK_COUNT(tslab_stats(&after, sizeof after), ==, 0);
  CHECK_COUNT(cached, <=, all->cached_blocks);
  CHECK_COUNT(cached, >=, after.cached_blocks);
}

void check_statistics(void) {
  static uint64_t made_before, gone_before; /* the counts before the first input */
  static bool begun;
  tslab_stats_global all;
  CHECK_COUNT(tslab_stats(&all, sizeof all), ==, 0);
  const uint64_t made = atomic_load(&blocks_made), gone = atomic_load(&blocks_gone);
  if (!begun) made_before = all.allocations - made, gone_before = all.frees - gone;
  begun = true;
  CHECK_COUNT(all.allocations, ==, made_before + made);
  CHECK_COUNT(all.frees, ==, gone_before + gone);
  CHECK_COUNT(all.live_blocks, ==, made - gone);
  CHECK_COUNT(all.live_bytes, ==, atomic_load(&bytes_live));
  CHECK_COUNT(all.committed_bytes, ==, all.in_use_bytes + all.free_dirty_bytes + all.free_clean_bytes);
  CHECK_COUNT(all.committed_bytes, <=, all.reserved_bytes);
  CHECK_COUNT(all.epochs_opened, ==, all.epochs_ended + all.epochs_open + all.epochs_closing);
  CHECK_COUNT(all.misuses, ==, 0);
  CHECK_COUNT(all.purge_failures, ==, 0);
  check_classes(&all);
}
