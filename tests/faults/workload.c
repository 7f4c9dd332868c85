/* workload.c: see workload.h. */
#include "workload.h"

#include "../check.h"
#include "../stress/shadow.h"

#include <pthread.h>
#include <sys/wait.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { BLOCKS = 800, SETS = 3, KEPT_ERRNO = 4711 };

bool (*work_may_fail)(void);

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

struct block {
  unsigned char *start; /* NULL: none */
  size_t usable;
  uint64_t seed;
  tslab_epoch epoch;
  tslab_handle handle; /* 0: freed by its address */
};

/* Used by one thread at a time. */
struct set {
  uint64_t random, refused;
  uint64_t allocations, frees; /* as the library counts them */
  unsigned endings;            /* 0: every way of ending an epoch; else 1 + the one */
  struct block blocks[BLOCKS];
};
static struct set sets[SETS];

static uint64_t random_of(struct set *s) { return check_random(&s->random); }

static struct block *unused(struct set *s) {
  for (unsigned i = 0; i < BLOCKS; i++)
    if (!s->blocks[i].start) return &s->blocks[i];
  CHECK(!"room in the set");
  return NULL;
}

/* Every word of a small block; of a larger one those at either end, and two of each page; of a large one few. */
static size_t next_mark(size_t at, size_t usable) {
  const size_t next = at + (usable <= 2 * KIB ? 8 : usable <= 64 * KIB ? 2040 : 30008);
  return at + 8 < usable && next >= usable ? usable - 8 : next;
}

static uint64_t mark(const struct block *b, size_t at) { return b->seed + at * UINT64_C(0x9E3779B97F4A7C15); }

static void fill(const struct block *b) {
  for (size_t at = 0; at < b->usable; at = next_mark(at, b->usable)) {
    const uint64_t value = mark(b, at);
    memcpy(b->start + at, &value, 8);
  }
}

/* Those of the marks that lie below `size`, which may be less than what was filled. */
static void check_marks(const struct block *b, const unsigned char *start, size_t size) {
  for (size_t at = 0; at < b->usable; at = next_mark(at, b->usable)) {
    const uint64_t value = mark(b, at);
    if (at + 8 <= size) CHECK(memcmp(start + at, &value, 8) == 0);
  }
}

/* NULL is an answer only where calls fail, and says ENOMEM. */
static bool granted(struct set *s, const void *start) {
  if (start) return true;
  CHECK_COUNT(errno, ==, ENOMEM);
  CHECK(work_may_fail && work_may_fail());
  s->refused++;
  return false;
}

static void keep(struct set *s, struct block *b, void *start, size_t size, tslab_epoch epoch) {
  *b = (struct block){.start = start, .usable = tslab_malloc_usable_size(start), .seed = random_of(s), .epoch = epoch};
  CHECK_COUNT(b->usable, >=, size);
  CHECK((uintptr_t)start % 16 == 0);
  CHECK(tslab_owns(start));
  CHECK_COUNT(tslab_epoch_of(start), ==, epoch);
  CHECK(shadow_claim_in(b->start, b->usable, epoch & ((UINT64_C(1) << 44) - 1)));
  fill(b);
}

static void check_zero(const unsigned char *start, size_t size) {
  CHECK(size == 0 || (start[0] == 0 && memcmp(start, start + 1, size - 1) == 0));
}

/* Of few classes, for every slab costs a call when it is given back. */
static size_t random_size(struct set *s) {
  static const size_t sizes[] = {0, 24, 100, 112, 500, 1280, 5000, 30000};
  const uint64_t kind = random_of(s) % 100, r = random_of(s);
  return kind < 96 ? sizes[r % (sizeof sizes / sizeof *sizes)] : r % (300 * KIB);
}

/* Ambient: in the epoch whose scope this is. */
static struct block *take(struct set *s, size_t size) {
  const tslab_epoch epoch = tslab_epoch_current();
  const size_t alignment = (size_t)16 << random_of(s) % 10;
  const unsigned how = random_of(s) % 6;
  void *start = NULL;
  errno = KEPT_ERRNO;
  if (how == 0) {
    start = tslab_calloc(1, size);
    if (start) check_zero(start, size);
  } else if (how == 1) {
    start = tslab_memalign(alignment, size);
    CHECK((uintptr_t)start % alignment == 0);
  } else if (how == 2) {
    const int error = tslab_posix_memalign(&start, alignment, size);
    CHECK_COUNT(errno, ==, error == ENOMEM ? ENOMEM : KEPT_ERRNO);
    CHECK((error == 0) == (start != NULL));
    errno = error;
  } else if (how == 3) {
    start = tslab_realloc(NULL, size);
  } else if (how == 4) {
    start = tslab_epoch_malloc(epoch, size);
  } else {
    start = tslab_malloc(size);
  }
  if (!granted(s, start)) return NULL;
  struct block *const b = unused(s);
  s->allocations++;
  keep(s, b, start, size, epoch);
  return b;
}

static void forget(struct set *s, struct block *b) {
  check_marks(b, b->start, b->usable);
  CHECK(shadow_release_in(b->start, b->usable, b->epoch & ((UINT64_C(1) << 44) - 1)));
  s->frees++;
  b->start = NULL;
}

static void release(struct set *s, struct block *b) {
  unsigned char *const start = b->start;
  forget(s, b);
  errno = KEPT_ERRNO;
  if (b->handle) {
    CHECK(tslab_handle_get(b->handle) == start);
    CHECK(tslab_handle_free(b->handle));
    CHECK(tslab_handle_get(b->handle) == NULL);
  } else {
    tslab_free(start);
  }
  CHECK_COUNT(errno, ==, KEPT_ERRNO);
}

static void resize(struct set *s, struct block *b, size_t size) {
  const struct block old = *b;
  void *const start = tslab_realloc(old.start, size);
  if (!granted(s, start)) {
    check_marks(b, b->start, b->usable);
    return;
  }
  check_marks(&old, start, old.usable < size ? old.usable : size);
  CHECK(shadow_release_in(old.start, old.usable, old.epoch & ((UINT64_C(1) << 44) - 1)));
  if (start != old.start) {
    s->allocations++;
    s->frees++;
  }
  keep(s, b, start, size, old.epoch);
}

static void check_all(const struct set *s) {
  for (unsigned i = 0; i < BLOCKS; i++)
    if (s->blocks[i].start) check_marks(&s->blocks[i], s->blocks[i].start, s->blocks[i].usable);
}

/* Those of an epoch, or of all when it is 0. */
static void release_some(struct set *s, tslab_epoch epoch, unsigned one_in) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    struct block *const b = &s->blocks[i];
    if (b->start && (!epoch || b->epoch == epoch) && random_of(s) % one_in == 0) release(s, b);
  }
}

/* ---- plain blocks ------------------------------------------------------------------------------------------------ */

static void use_blocks(struct set *s, unsigned count) {
  for (unsigned i = 0; i < count; i++) take(s, random_size(s));
}

static void use_large(struct set *s) {
  static const size_t sizes[] = {40 * KIB, 100 * KIB, 700 * KIB, 3 * MIB};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) take(s, sizes[i] + random_of(s) % KIB);
  void *const aligned = tslab_memalign(2 * MIB, 300 * KIB);
  if (granted(s, aligned)) {
    CHECK((uintptr_t)aligned % (2 * MIB) == 0);
    s->allocations++;
    keep(s, unused(s), aligned, 300 * KIB, tslab_epoch_current());
  }
}

/* Each growth finds the memory behind it in use, so that it moves; some shrink again. */
static void use_growth(struct set *s) {
  struct block *b = take(s, 280 * KIB);
  for (size_t size = 600 * KIB; b && size < 5 * MIB; size += size) {
    take(s, 70 * KIB);
    resize(s, b, size);
  }
  if (b) resize(s, b, 800 * KIB);
  for (unsigned i = 0; i < BLOCKS; i += 16)
    if (s->blocks[i].start && !s->blocks[i].handle) resize(s, &s->blocks[i], random_size(s) + 1);
}

/* Writes to memory, frees it and gives it back. The library may call the memory that it hands out next zero. */
static void use_zeros(struct set *s) {
  for (unsigned i = 0; i < 2; i++) {
    unsigned char *const dirty = tslab_malloc(1 * MIB);
    if (granted(s, dirty)) {
      memset(dirty, 0xa5, 1 * MIB);
      s->allocations++;
      s->frees++;
      tslab_free(dirty);
    }
    tslab_malloc_trim(0);
    unsigned char *const zeros = tslab_calloc(3, 300 * KIB);
    if (!granted(s, zeros)) continue;
    check_zero(zeros, 900 * KIB);
    s->allocations++;
    keep(s, unused(s), zeros, 900 * KIB, tslab_epoch_current());
  }
}

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

enum ending { CLOSED, STEPPED, DESTROYED, RESET_THEN_CLOSED, ENDINGS };

/* A parent's charge is what it and its children hold, whatever was refused on the way. */
static void check_charge(tslab_epoch e, tslab_epoch child) {
  tslab_epoch_status own, of_child = {.charged_bytes = 0};
  CHECK_COUNT(tslab_epoch_info(e, &own), ==, 0);
  if (child && tslab_epoch_info(child, &of_child) == ESTALE) of_child.charged_bytes = 0;
  CHECK_COUNT(own.charged_bytes, ==, own.committed_bytes + of_child.charged_bytes);
}

static tslab_epoch open_epoch(struct set *s, const tslab_epoch_options *wanted) {
  errno = KEPT_ERRNO;
  const tslab_epoch e = tslab_epoch_open_with(wanted);
  if (e) return e;
  granted(s, NULL);
  return 0;
}

static void use_handles(struct set *s, tslab_epoch e) {
  for (unsigned i = 0; i < 40; i++) {
    void *start;
    const size_t size = random_size(s) % 2000;
    const tslab_handle handle = tslab_handle_alloc(e, size, &start);
    CHECK((handle != 0) == (start != NULL));
    if (!granted(s, start)) continue;
    struct block *const b = unused(s);
    s->allocations++;
    keep(s, b, start, size, e);
    b->handle = handle;
  }
}

/* Many sizes for chunks; few that need a slab of their own once the epoch reuses memory; some large. */
static size_t size_inside(struct set *s, unsigned i) {
  if (i % 32 == 0) return 20 * KIB;
  if (i % 41 == 0) return 90 * KIB;
  return i % 4 == 0 ? 48 : random_of(s) % 900;
}

/* Blocks that come and go, until the epoch reuses memory. */
static void use_inside(struct set *s, tslab_epoch e, unsigned count) {
  const int error = tslab_epoch_enter(e);
  if (error != 0) {
    errno = error;
    granted(s, NULL);
    return;
  }
  CHECK_COUNT(tslab_epoch_current(), ==, e);
  for (unsigned i = 0; i < count; i++) {
    struct block *const b = take(s, size_inside(s, i));
    if (b && i % 2 == 0) release(s, b);
  }
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
}

/* The caller vouches: these blocks are forgotten, not freed. */
static void give_up(struct set *s, tslab_epoch e) {
  for (unsigned i = 0; i < BLOCKS; i++)
    if (s->blocks[i].start && s->blocks[i].epoch == e) forget(s, &s->blocks[i]);
}

static void check_ended(tslab_epoch e) {
  tslab_epoch_status status;
  CHECK_COUNT(tslab_epoch_info(e, &status), ==, ESTALE);
}

static void end_epoch(struct set *s, tslab_epoch e, enum ending how) {
  tslab_epoch_report report;
  int error = EAGAIN;
  if (how == DESTROYED) {
    give_up(s, e);
    CHECK_COUNT(tslab_epoch_destroy(e, &report), ==, 0);
    check_ended(e);
    return;
  }
  if (how == RESET_THEN_CLOSED) {
    give_up(s, e);
    CHECK_COUNT(tslab_epoch_reset(e, &report), ==, 0);
    check_charge(e, 0);
    use_inside(s, e, 60);
  }
  release_some(s, e, 2);
  while (how == STEPPED && error == EAGAIN) error = tslab_epoch_close_step(e, 0, &report);
  if (how != STEPPED) error = tslab_epoch_close(e, &report);
  CHECK_COUNT(error, ==, 0);
  check_all(s); /* blocks that outlive the close keep their contents */
  release_some(s, e, 1);
  check_ended(e);
}

static void use_family(struct set *s, uint64_t prefault) {
  const tslab_epoch_options plain = {sizeof plain, "parent", 0, 0, TSLAB_EPOCH_DESTROYABLE, 0};
  const tslab_epoch parent = open_epoch(s, &plain);
  if (!parent) return;
  use_inside(s, parent, 20);
  for (unsigned i = 0; i < 2; i++) {
    const tslab_epoch_options ready = {sizeof ready, "child", 16 * MIB, prefault, TSLAB_EPOCH_DESTROYABLE, parent};
    const tslab_epoch child = open_epoch(s, &ready);
    if (child) {
      use_inside(s, child, 40);
      release_some(s, child, 1);
      CHECK_COUNT(tslab_epoch_close(child, NULL), ==, 0);
    }
    check_charge(parent, child);
  }
  end_epoch(s, parent, CLOSED);
}

static void use_epochs(struct set *s) {
  const tslab_epoch_options plain = {sizeof plain, "plain", 0, 0, TSLAB_EPOCH_DESTROYABLE, 0};
  for (unsigned how = 0; how < ENDINGS; how++) {
    if (s->endings && s->endings != how + 1) continue;
    const tslab_epoch e = open_epoch(s, &plain);
    if (!e) continue;
    use_inside(s, e, 150);
    if (how != DESTROYED && how != RESET_THEN_CLOSED) use_handles(s, e);
    end_epoch(s, e, how);
  }
  for (unsigned i = 0; i < 2; i++) {
    const tslab_epoch e = tslab_epoch_advance("advanced", NULL);
    if (!granted(s, e ? s : NULL)) continue;
    use_blocks(s, 20);
    release_some(s, e, 1);
    CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
    CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  }
}

/* ---- threads and processes --------------------------------------------------------------------------------------- */

static void *work(void *argument) {
  struct set *const s = argument;
  release_some(s, 0, 2); /* of another thread's */
  use_blocks(s, 60);
  use_epochs(s);
  take(s, 500 * KIB);
  return NULL;
}

static void use_threads(void) {
  pthread_t threads[SETS];
  for (unsigned i = 1; i < SETS; i++) use_blocks(&sets[i], 80);
  for (unsigned i = 1; i < SETS; i++) {
    const int error = pthread_create(&threads[i], NULL, work, &sets[i]);
    if (error == 0) continue;
    CHECK(work_may_fail && work_may_fail()); /* libc asks the library for memory too */
    work(&sets[i]);
    threads[i] = 0;
  }
  for (unsigned i = 1; i < SETS; i++)
    if (threads[i]) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void use_fork(struct set *s) {
  const pid_t child = fork();
  if (child < 0) {
    CHECK(work_may_fail && work_may_fail());
    return;
  }
  if (child == 0) {
    for (unsigned i = 0; i < SETS; i++) check_all(&sets[i]);
    s->endings = RESET_THEN_CLOSED + 1;
    use_blocks(s, 60);
    use_epochs(s);
    release_some(s, 0, 2);
    tslab_malloc_trim(0);
    check_all(s);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) dprintf(2, "signal %d in the child\n", WTERMSIG(status));
  CHECK_COUNT(status, ==, 0);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void get_stats(tslab_stats_global *out) {
  CHECK_COUNT(tslab_stats(out, sizeof *out), ==, 0);
  CHECK_COUNT(out->committed_bytes, ==, out->in_use_bytes + out->free_dirty_bytes + out->free_clean_bytes);
  CHECK_COUNT(out->allocations - out->frees, ==, out->live_blocks);
}

/* libc, where it uses the library too, keeps what belongs to its cached stacks. */
#ifdef TEST_LIBC
enum { LIBC_BLOCKS = 16 };
#else
enum { LIBC_BLOCKS = 0 };
#endif

static void check_counts(const tslab_stats_global *before) {
  tslab_stats_global now;
  uint64_t live = 0;
  get_stats(&now);
  for (unsigned i = 0; i < SETS; i++) live += sets[i].allocations - sets[i].frees;
  const uint64_t counted = now.live_blocks - before->live_blocks - live;
  CHECK_COUNT(counted, <=, LIBC_BLOCKS);
}

/* Rows are collected in address space had for the moment. */
static void use_statistics(struct set *s) {
  tslab_label_stats row;
  for (unsigned i = 0; i < 3; i++) {
    const int error = tslab_stats_label(i, &row, sizeof row);
    errno = error;
    if (error != ERANGE) granted(s, error ? NULL : s);
  }
}

uint64_t work_run(uint64_t seed, unsigned with) {
  tslab_stats_global before;
  struct set *const s = &sets[0];
  uint64_t refused = 0;
  get_stats(&before);
  for (unsigned i = 0; i < SETS; i++) sets[i] = (struct set){.random = seed * SETS + i + 1, .endings = i};
  use_blocks(s, 200);
  use_large(s);
  use_growth(s);
  check_counts(&before);
  use_epochs(s);
  use_family(s, with & WORK_TABLES ? 256 * KIB : 0);
  if (with & WORK_THREADS) use_threads();
  if (with & WORK_FORK) use_fork(s);
  check_counts(&before);
  release_some(s, 0, 2);
  tslab_purge();
  use_zeros(s);
  use_handles(s, 0);
  if (with & WORK_TABLES) use_statistics(s);
  use_growth(s);
  for (unsigned i = 0; i < SETS; i++) {
    check_all(&sets[i]);
    release_some(&sets[i], 0, 1);
    refused += sets[i].refused;
  }
  tslab_purge();
  check_counts(&before);
  return refused;
}
