/* sizes.c: sizes, counts, alignments, budgets and prefaults at the edges of what a word holds.
 *
 * A request that the library cannot serve returns NULL with the errno that the manual page or the header names, and
 * changes nothing. Any other returns a whole block: usable at both ends, aligned, apart from all others.
 *
 *   op    [ kind 8 ] [ slot and variant 8 ] [ first number 24 ] [ second number 24 ]
 *   number   [ base 5, variant 3 ] [ exponent 6 ] [ offset 8, signed ] */
#include "fuzz.h"

#include "base/options.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HELD = 8, EPOCH_COUNT = 4, NUMBER_BYTES = 3, STEP_BYTES = 2 + 2 * NUMBER_BYTES, STEPS = 64 };
#define TOUCHED_MOST ((size_t)16 << 20) /* resident, in all that one call may copy or fill */

static struct held {
  unsigned char *start;
  size_t size, usable;
  tslab_epoch epoch;
  unsigned char mark;
} held[HELD];

static tslab_epoch epochs[EPOCH_COUNT];
static uint64_t budgets[EPOCH_COUNT];

static size_t number(const uint8_t *at) {
  static const size_t bases[] = {0, 0, 0, PTRDIFF_MAX, SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 3, (size_t)1 << 47};
  /* A request that only a large machine grants takes long to give back, so it is rare. */
  const bool is_rare = at[1] % 64 >= 32 && at[1] % 64 < 40 && at[1] < 192;
  const size_t offset = (size_t)(int8_t)at[2], power = (size_t)1 << (at[1] % 64 + 8 * is_rare);
  switch (at[0] % 4) {
  case 0: return bases[at[0] / 4 % 8] + offset;
  case 1: return power + offset;
  case 2: return bases[at[0] / 4 % 8] - power + offset;
  default: return offset & 255;
  }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void check_ends(const struct held *h) {
  if (h->usable == 0) return;
  CHECK_COUNT(h->start[0], ==, h->mark);
  CHECK_COUNT(h->start[h->usable - 1], ==, h->mark);
}

static void mark_ends(struct held *h) {
  static unsigned char marks;
  h->mark = ++marks;
  h->start[0] = h->start[h->usable - 1] = h->mark;
}

static void drop(struct held *h) {
  if (!h->start) return;
  check_ends(h);
  tslab_free(h->start);
  h->start = NULL;
}

static void hold(struct held *h, void *start, size_t size, size_t alignment, tslab_epoch epoch) {
  drop(h);
  *h = (struct held){.start = start, .size = size, .usable = tslab_malloc_usable_size(start), .epoch = epoch};
  CHECK_COUNT(size, <=, PTRDIFF_MAX);
  CHECK_COUNT(h->usable, >=, size);
  CHECK_COUNT(h->usable, >, 0);
  CHECK_COUNT((uintptr_t)start % 16, ==, 0);
  CHECK_COUNT((uintptr_t)start & (alignment - 1), ==, 0);
  CHECK_COUNT(tslab_epoch_of(start), ==, epoch);
  for (struct held *o = held; o < held + HELD; o++)
    CHECK(o == h || !o->start || o->start + o->usable <= h->start || h->start + h->usable <= o->start);
  mark_ends(h);
}

/* The outcome of a call that must fail when `impossible`, and may when it is large. */
static void judge(struct held *h, void *start, size_t size, size_t alignment, tslab_epoch epoch, bool impossible) {
  CHECK(!impossible || !start);
  if (start) hold(h, start, size, alignment, epoch);
  else CHECK_COUNT(errno, ==, ENOMEM);
  CHECK(start || impossible || epoch || size > 1 << 20 || alignment > 1 << 20);
}

static bool is_power(size_t n) { return n && !(n & (n - 1)); }

static size_t rounded_up(size_t alignment) {
  size_t power = 1;
  while (power < alignment) power *= 2;
  return power;
}

/* calloc is looked at where that touches little. */
static void check_zeros(const unsigned char *start, size_t size) {
  if (!start || size == 0) return;
  check_zero(start, size <= 4096 ? size : 4096);
  CHECK(start[size / 2] == 0 && start[size - 1] == 0);
}

static void resize(struct held *h, size_t size, size_t count, bool array) {
  const struct held old = *h;
  size_t bytes = size;
  const bool wraps = array && __builtin_mul_overflow(count, size, &bytes);
  if (!h->start || (bytes == 0 && !wraps)) return;
  if (old.usable > TOUCHED_MOST && bytes > old.usable && bytes <= (size_t)1 << 40) return; /* it could be copied */
  check_ends(&old);
  errno = 0;
  unsigned char *const start = array ? tslab_reallocarray(h->start, count, size) : tslab_realloc(h->start, size);
  if (!start) {
    CHECK_COUNT(errno, ==, ENOMEM);
    CHECK(wraps || old.epoch || bytes > 1 << 20);
    CHECK_COUNT(tslab_malloc_usable_size(old.start), ==, old.usable);
    check_ends(&old);
    return;
  }
  CHECK(!wraps);
  CHECK_COUNT(start[0], ==, old.mark);
  if (bytes >= old.usable) CHECK_COUNT(start[old.usable - 1], ==, old.mark);
  h->start = NULL;
  hold(h, start, bytes, 16, old.epoch);
}

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

static void open_one(unsigned slot, uint64_t budget, uint64_t prefault, bool below) {
  const unsigned parent = (slot + 1) % EPOCH_COUNT;
  if (epochs[slot] || (below && !epochs[parent])) return;
  if (prefault > TOUCHED_MOST && prefault < (uint64_t)1 << 40) return; /* a large machine would grant it */
  const tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "sizes", .budget_bytes = budget,
                                      .prefault_bytes = prefault, .parent = below ? epochs[parent] : 0};
  errno = 0;
  const tslab_epoch id = tslab_epoch_open_with(&wanted);
  tslab_epoch_status s;
  if (!id) {
    CHECK_COUNT(errno, ==, (budget && budget < 65536 ? EINVAL : ENOMEM));
    CHECK(errno == EINVAL || prefault);
    return;
  }
  epochs[slot] = id;
  budgets[slot] = budget;
  CHECK(prefault <= TOUCHED_MOST && (!budget || (budget >= 65536 && prefault <= budget)));
  CHECK_COUNT(tslab_epoch_info(id, &s), ==, 0);
  CHECK_COUNT(s.budget_bytes, ==, (budget == UINT64_MAX ? 0 : budget)); /* all that there could be is no limit */
  CHECK_COUNT(s.committed_bytes, >=, prefault);
}

static void check_charged(unsigned slot) {
  tslab_epoch_status s;
  if (!epochs[slot]) return;
  CHECK_COUNT(tslab_epoch_info(epochs[slot], &s), ==, 0);
  if (budgets[slot]) CHECK_COUNT(s.charged_bytes, <=, budgets[slot]);
}

static void close_one(unsigned slot, uint64_t ns) {
  if (!epochs[slot]) return;
  for (unsigned i = 0; i < HELD; i++)
    if (held[i].start && held[i].epoch) drop(&held[i]);
  int error;
  while ((error = tslab_epoch_close_step(epochs[slot], ns, NULL)) == EAGAIN) {}
  CHECK(error == 0 || error == ESTALE); /* its parent may have been closed */
  epochs[slot] = 0;
  for (unsigned i = 0; i < EPOCH_COUNT; i++) {
    tslab_epoch_status s;
    if (tslab_epoch_info(epochs[i], &s) == ESTALE) epochs[i] = 0;
  }
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

enum kind {
  MALLOC, CALLOC, REALLOC, REALLOCARRAY, ALIGNED_ALLOC, POSIX_MEMALIGN, MEMALIGN, VALLOC, PVALLOC, FREE, FREE_SIZED,
  OPEN, EPOCH_MALLOC, EPOCH_CALLOC, EPOCH_ALIGNED, HANDLE, CLOSE, SCOPE, KINDS
};

static void handle(struct held *h, tslab_epoch epoch, size_t size) {
  void *start = &start;
  errno = 0;
  const tslab_handle made = tslab_handle_alloc(epoch, size, &start);
  CHECK((made == 0) == (start == NULL));
  judge(h, start, size, 16, epoch, size > PTRDIFF_MAX);
  if (!made) return;
  check_ends(h);
  h->start = NULL;
  CHECK(tslab_handle_get(made) == start && tslab_handle_free(made) && !tslab_handle_free(made));
}

static void posix_memalign_at(struct held *h, size_t alignment, size_t size) {
  void *out = &out;
  errno = 77;
  const int error = tslab_posix_memalign(&out, alignment, size);
  CHECK_COUNT(errno, ==, error == ENOMEM ? ENOMEM : 77);
  const bool is_bad = !is_power(alignment) || alignment % sizeof(void *) != 0;
  CHECK_COUNT((error == EINVAL), ==, is_bad);
  if (error) CHECK(out == &out);
  errno = error;
  if (!is_bad) judge(h, error ? NULL : out, size, alignment, 0, size > PTRDIFF_MAX || alignment > PTRDIFF_MAX);
}

static void memalign_at(struct held *h, size_t alignment, size_t size, bool by_c11) {
  errno = 0;
  void *const start = by_c11 ? tslab_aligned_alloc(alignment, size) : tslab_memalign(alignment, size);
  if (by_c11 ? !is_power(alignment) : alignment > SIZE_MAX / 2 + 1) {
    CHECK(!start);
    CHECK_COUNT(errno, ==, EINVAL);
  } else {
    judge(h, start, size, rounded_up(alignment), 0, size > PTRDIFF_MAX || alignment > PTRDIFF_MAX);
  }
}

static void do_one(const uint8_t *op) {
  struct held *const h = &held[op[1] % HELD];
  const unsigned slot = op[1] / HELD % EPOCH_COUNT;
  const size_t a = number(op + 2), b = number(op + 2 + NUMBER_BYTES);
  const tslab_epoch epoch = epochs[slot];
  size_t product;
  const bool wraps = __builtin_mul_overflow(a, b, &product);
  void *start;
  errno = 0;
  switch ((enum kind)(op[0] % KINDS)) {
  case MALLOC: judge(h, tslab_malloc(a), a, 16, 0, a > PTRDIFF_MAX); break;
  case CALLOC:
    if (!wraps && product > TOUCHED_MOST && product < (size_t)1 << 40) break; /* it could be filled */
    start = tslab_calloc(a, b);
    if (start) check_zeros(start, product);
    judge(h, start, product, 16, 0, wraps || product > PTRDIFF_MAX);
    break;
  case REALLOC: resize(h, a, 1, false); break;
  case REALLOCARRAY: resize(h, a, b, true); break;
  case ALIGNED_ALLOC: memalign_at(h, a, b, true); break;
  case MEMALIGN: memalign_at(h, a, b, false); break;
  case POSIX_MEMALIGN: posix_memalign_at(h, a, b); break;
  case VALLOC: judge(h, tslab_valloc(a), a, 4096, 0, a > PTRDIFF_MAX); break;
  case PVALLOC:
    start = tslab_pvalloc(a);
    judge(h, start, start && a % 4096 ? a / 4096 * 4096 + 4096 : a, 4096, 0, a > PTRDIFF_MAX);
    break;
  case FREE: drop(h); break;
  case FREE_SIZED:
    if (h->start) tslab_free_sized(h->start, h->size);
    h->start = NULL;
    break;
  case OPEN: open_one(slot, a, b, op[1] & 128); break;
  case EPOCH_MALLOC: judge(h, tslab_epoch_malloc(epoch, a), a, 16, epoch, a > PTRDIFF_MAX); break;
  case EPOCH_CALLOC:
    if (!wraps && product > TOUCHED_MOST && product < (size_t)1 << 40) break;
    start = tslab_epoch_calloc(epoch, a, b);
    if (start) check_zeros(start, product);
    judge(h, start, product, 16, epoch, wraps || product > PTRDIFF_MAX);
    break;
  case EPOCH_ALIGNED:
    start = tslab_epoch_aligned_alloc(epoch, a, b);
    if (is_power(a)) judge(h, start, b, a, epoch, b > PTRDIFF_MAX || a > PTRDIFF_MAX);
    else CHECK(!start && errno == EINVAL);
    break;
  case HANDLE: handle(h, epoch, a); break;
  case CLOSE: close_one(slot, a); break;
  case SCOPE:
    CHECK_COUNT(tslab_epoch_enter(epoch), ==, 0);
    tslab_scope_unwind((int)a > 0 ? (int)a : 0);
    tslab_scope_unwind(-(int)(a & 0xffff));
    if ((int)a > 0) tslab_scope_unwind(0);
    CHECK_COUNT(tslab_scope_depth(), ==, 0);
    break;
  case KINDS: break;
  }
  check_charged(slot);
}

int LLVMFuzzerInitialize(int *count, char ***arguments) {
  (void)count, (void)arguments;
  options.scavenger = 0;
  options.publish = 0;
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tslab_stats_global before, after;
  fuzz_remember(data, size);
  CHECK(tslab_stats(&before, sizeof before) == 0);
  for (size_t at = 0; at + STEP_BYTES <= size && at < STEPS * STEP_BYTES; at += STEP_BYTES) do_one(data + at);
  for (unsigned i = 0; i < HELD; i++) drop(&held[i]);
  for (unsigned i = 0; i < EPOCH_COUNT; i++) close_one(i, UINT64_MAX);
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.live_blocks, ==, before.live_blocks);
  CHECK_COUNT(after.live_bytes, ==, before.live_bytes);
  CHECK_COUNT(after.epochs_open + after.epochs_closing, ==, 0);
  CHECK_COUNT(after.allocations - before.allocations, ==, after.frees - before.frees);
  return 0;
}
