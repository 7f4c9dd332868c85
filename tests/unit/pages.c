/* pages: allocates, resizes, frees and purges runs of random sizes and alignments, against a map of each granule's
 * owner. */
#include "unit.h"

#include "../stress/filter.h"
#include "base/options.h"
#include "pages/pages.h"

#include <fcntl.h>

#include <sys/auxv.h>

enum { SLOTS = 64, GRANULES = 1 << 16, LINE = 64 };

struct slot {
  struct run *run;
  size_t granules;
  unsigned char stamp; /* of every granule; 0: never written, and was zero */
};
static struct slot slots[SLOTS];
static unsigned char owner[GRANULES]; /* slot + 1 */
static uint64_t random_state = 1;

static size_t draw(size_t n) { return check_random(&random_state) % n; }

/* Each granule has one written byte, at a place that differs from granule to granule. */
static unsigned char *stamp_of(struct run *run, size_t granule) {
  return (unsigned char *)run_start(run) + granule * GRANULE + (run_index(run) + granule) * LINE * 7 % GRANULE;
}

static bool reads_zero(const struct run *run) {
  for (const char *p = run_start(run), *end = p + run_bytes(run); p < end; p += LINE)
    if (*p != 0) return false;
  return true;
}

static void check_slot(const struct slot *s) {
  CHECK_COUNT(s->run->granules, ==, s->granules);
  CHECK(pages_run_of(run_start(s->run) + draw(run_bytes(s->run))) == s->run);
  for (size_t g = 0; g < s->granules; g++) {
    CHECK_COUNT(owner[run_index(s->run) + g], ==, s - slots + 1);
    CHECK_COUNT(*stamp_of(s->run, g), ==, s->stamp);
  }
}

/* Granules [from, to) of the run get another owner. */
static void write_owner(const struct slot *s, size_t from, size_t to, int before, int after) {
  for (size_t g = run_index(s->run) + from; g < run_index(s->run) + to; g++) {
    CHECK_COUNT(g, <, GRANULES);
    CHECK_COUNT(owner[g], ==, before);
    owner[g] = (unsigned char)after;
  }
}

static int number(const struct slot *s) { return (int)(s - slots) + 1; }

static void write_stamps(struct slot *s) {
  s->stamp = (unsigned char)(1 + draw(255));
  for (size_t g = 0; g < s->granules; g++) *stamp_of(s->run, g) = s->stamp;
}

static size_t a_window(size_t granules) {
  size_t window = 1;
  while (window < granules) window *= 2;
  return window << draw(4);
}

static void allocate(struct slot *s) {
  size_t alignment = GRANULE << (draw(4) ? 0 : draw(6));
  bool zero;
  s->granules = draw(8) ? 1 + draw(6) : 1 + draw(80);
  s->run = NULL;
  if (draw(4) == 0) {
    const size_t window = a_window(s->granules);
    s->run = pages_alloc_in_window(s->granules, window, RUN_LARGE, &zero);
    if (s->run) alignment = window * GRANULE;
  }
  struct pages_how how = {.wants_zero = draw(4) == 0};
  if (!s->run) {
    s->run = pages_alloc(s->granules, alignment, RUN_LARGE, &zero, &how);
    CHECK(zero || !how.wants_zero);
  }
  CHECK(s->run != NULL && s->run->kind == RUN_LARGE);
  CHECK(s->run->word == 0 && s->run->heap == NULL && s->run->epoch == 0 && s->run->size == 0 && !s->run->moved);
  CHECK_COUNT((uintptr_t)run_start(s->run) % alignment, ==, 0);
  write_owner(s, 0, s->granules, 0, number(s));
  if (zero) CHECK(reads_zero(s->run));
  s->stamp = 0;
  if (!zero || draw(2)) write_stamps(s);
}

static void release(struct slot *s) {
  check_slot(s);
  write_owner(s, 0, s->granules, number(s), 0);
  pages_free(s->run, s->stamp == 0);
  s->run = NULL;
}

static bool somebody_is_there(size_t from, size_t to) {
  for (; from < to; from++)
    if (owner[from]) return true;
  return false;
}

/* The growth is refused if a neighbour is in the way, and otherwise only where the frontier would have to move. The
   contents stay. */
static void resize(struct slot *s) {
  const size_t before = s->granules, after = 1 + draw(2 * before + 4), end = run_index(s->run) + before;
  const bool in_the_way = after > before && somebody_is_there(end, end + after - before);
  check_slot(s);
  const bool within = end + after - before <= pages.count, done = pages_resize(s->run, after);
  if (in_the_way || within) CHECK_COUNT(done, ==, !in_the_way);
  if (!done) return;
  if (after < before) write_owner(s, after, before, number(s), 0);
  else write_owner(s, before, after, 0, number(s));
  s->granules = after;
  if (after > before) write_stamps(s); /* the bytes that it grew by are arbitrary */
}

static void purge(void) {
  const size_t dirty = pages_free_dirty(), returned = pages_totals().returned;
  CHECK_COUNT(pages_purge(UINT64_MAX, SIZE_MAX), ==, dirty);
  CHECK_COUNT(pages_totals().returned, ==, returned + dirty);
  CHECK_COUNT(pages_free_dirty(), ==, 0);
}

static void check_totals(void) {
  const struct pages_totals totals = pages_totals();
  size_t owned = 0;
  for (size_t g = 0; g < GRANULES; g++) owned += owner[g] != 0;
  CHECK_COUNT(totals.committed - totals.free_clean - totals.free_dirty, ==, owned << GRANULE_SHIFT);
  CHECK_COUNT(totals.committed, <=, totals.reserved);
}

static void against_a_map(void) {
  uint64_t tick = 1;
  for (int i = 0; i < 20000 / TEST_SCALE; i++) {
    struct slot *const s = &slots[draw(SLOTS)];
    if (!s->run) allocate(s);
    else if (draw(2)) resize(s);
    else release(s);
    if (draw(200) == 0) purge();
    if (draw(1000) == 0) pages_set_tick(++tick);
    if (draw(100) == 0) pages_purge(tick - 1, SIZE_MAX);
    pages_check();
    if (i % 64 == 0) check_totals();
  }
  for (int i = 0; i < SLOTS; i++)
    if (slots[i].run) release(&slots[i]);
  check_totals();
  purge();
}

static struct run *take(size_t granules) {
  bool zero;
  struct run *const run = pages_alloc(granules, GRANULE, RUN_LARGE, &zero, NULL);
  CHECK(run != NULL);
  return run;
}

/* Only runs that were free before the tick go back. Runs in use lie between them, because runs that join take the older
   stamp. */
static void ticks(void) {
  struct run *const first = take(1), *const young = take(4), *const wall = take(1);
  struct run *const old = take(4), *const last = take(1);
  pages_set_tick(10);
  pages_free(old, false);
  pages_set_tick(11);
  pages_free(young, false);
  CHECK_COUNT(pages_purge(10, SIZE_MAX), ==, 0);
  CHECK_COUNT(pages_purge(11, SIZE_MAX), ==, 4 * GRANULE);
  CHECK_COUNT(pages_purge(11, SIZE_MAX), ==, 0);
  CHECK_COUNT(pages_purge(12, SIZE_MAX), ==, 4 * GRANULE);
  pages_free(first, true), pages_free(wall, true), pages_free(last, true);
  CHECK_COUNT(pages_free_dirty(), ==, 0);
}

static bool is_resident(const struct run *run) {
  for (char *page = run_start(run); page < run_start(run) + run_bytes(run); page += os_page_size) {
    unsigned char resident;
    CHECK(mincore(page, os_page_size, &resident) == 0);
    if (!(resident & 1)) return false;
  }
  return true;
}

/* Memory behind a frozen frontier is not populated. */
static void populate_in_a_child(void) {
  pages_freeze(true);
  CHECK(pages_first_run() == NULL);
  pages_note_growth(PTRDIFF_MAX / 2);
  pages_populate();
  pages_check();
}

/* A heap that is large and grows gets resident memory ahead of need: a share of it, which counts as dirty, serves the
   next allocation, and is purged if none comes. */
static void ahead_of_need(void) {
  const size_t much = AHEAD_LEAST_HEAP >> GRANULE_SHIFT, enough = much / AHEAD_SHARE / 2;
  pages_purge(UINT64_MAX, SIZE_MAX);
  pages_note_growth((ptrdiff_t)much);
  struct run *const small = take(much / 2);
  CHECK(!pages_growth_is_foreseen()); /* a small heap */
  CHECK_COUNT(pages_populate(), ==, 0);
  struct run *const large = take(much);
  CHECK(!pages_growth_is_foreseen()); /* it has not grown since */
  pages_note_growth((ptrdiff_t)much);
  pages_note_growth(-(ptrdiff_t)much - 8); /* runs that come and go are no growth */
  CHECK(!pages_growth_is_foreseen());
  for (uint64_t tick = 12; tick < 20; tick++) pages_set_tick(tick); /* each forgets half of it */
  pages_note_growth((ptrdiff_t)enough - 1);
  CHECK(!pages_growth_is_foreseen());
  pages_note_growth((ptrdiff_t)much);
  CHECK(pages_growth_is_foreseen());
  options.ahead = 0;
  CHECK(!pages_growth_is_foreseen());
  options.ahead = 1;
  const size_t before = pages_totals().populated, got = pages_populate();
  CHECK_COUNT(pages_totals().populated - before, ==, got);
  CHECK(!pages_growth_is_foreseen());
  pages_note_growth((ptrdiff_t)much);
  CHECK(!pages_growth_is_foreseen()); /* there is enough already, or the kernel cannot do it */
  pages_check();
  if (got != 0) {
    CHECK_COUNT(pages_free_dirty(), ==, got);
    CHECK_COUNT(got, <=, (run_bytes(small) + run_bytes(large)) / AHEAD_SHARE + AHEAD_PIECE);
    struct run *const next = take(1);
    CHECK(emulated() || is_resident(next)); /* an emulator says yes to any advice */
    CHECK_COUNT(pages_free_dirty(), ==, got - GRANULE);
    pages_free(next, false);
    CHECK_COUNT(pages_purge(UINT64_MAX, SIZE_MAX), ==, got);
    CHECK(pages_growth_is_foreseen());
    pages_forget_growth();
    CHECK_COUNT(pages_populate(), ==, 0);
  }
  if (!SANITIZED && !emulated()) CHECK(in_child(populate_in_a_child) == 0);
  pages_free(small, true), pages_free(large, true);
}

/* A long run stays long while a shorter one fits, even if only the long one is resident; of two equal runs the resident
   one is taken. */
static void smallest_that_fits(void) {
  struct run *const wall = take(1), *const shorter = take(1), *const wall2 = take(1), *const equal = take(1);
  struct run *const wall3 = take(1), *const longer = take(8), *const last = take(1);
  pages_free(shorter, true);
  pages_free(equal, false);
  pages_free(longer, false);
  CHECK(take(1) == equal);
  CHECK(take(1) == shorter);
  CHECK(take(8) == longer);
  struct run *const all[] = {wall, shorter, wall2, equal, wall3, longer, last};
  for (int i = 0; i < 7; i++) pages_free(all[i], false);
}

static struct run *take_in_window(size_t granules, size_t window) {
  bool zero;
  struct run *const run = pages_alloc_in_window(granules, window, RUN_LARGE, &zero);
  CHECK(run != NULL);
  CHECK_COUNT((uintptr_t)run_start(run) % (window * GRANULE), ==, 0);
  return run;
}

static bool fits_behind(const struct run *run, size_t granules, const struct run *other) {
  return run_index(other) >= run_index(run) + granules || run_index(other) + other->granules <= run_index(run);
}

/* Runs in windows grow in turn without moving, even if other runs are taken meanwhile. */
static void room_is_kept(void) {
  enum { RUNS = 6, WINDOW = 16, OTHERS = 40 };
  struct run *runs[RUNS], *others[OTHERS];
  pages_purge(UINT64_MAX, SIZE_MAX);
  const size_t free_before = pages_totals().committed - pages_totals().free_clean;
  for (int i = 0; i < RUNS; i++) runs[i] = take_in_window(2, WINDOW);
  CHECK_COUNT(pages_totals().committed - pages_totals().free_clean, ==, free_before + RUNS * 2 * GRANULE);
  for (int i = 0; i < OTHERS; i++) {
    others[i] = take(1 + draw(WINDOW));
    for (int j = 0; j < RUNS; j++) CHECK(fits_behind(runs[j], WINDOW, others[i]));
  }
  for (size_t granules = 3; granules <= WINDOW; granules++)
    for (int i = 0; i < RUNS; i++) CHECK(pages_resize(runs[i], granules));
  pages_check();
  for (int i = 0; i < RUNS; i++) pages_free(runs[i], i % 2);
  for (int i = 0; i < OTHERS; i++) pages_free(others[i], true);
  pages_check();
}

/* Room that no run grew into for a tick, or that lies behind a run that shrinks or ends, is free for all. */
static void room_is_given_up(void) {
  enum { WINDOW = 64 };
  pages_purge(UINT64_MAX, SIZE_MAX);
  pages_set_tick(20);
  struct run *const still = take_in_window(1, WINDOW), *const grows = take_in_window(1, WINDOW);
  struct run *const shrinks = take_in_window(2, WINDOW);
  pages_set_tick(21);
  CHECK(pages_resize(grows, 2));
  CHECK(pages_resize(shrinks, 1));
  CHECK_COUNT(pages_purge(21, SIZE_MAX), ==, 0); /* nothing was dirty; rooms from before the tick go */
  CHECK(pages.runs[run_index(still) + 1].kind == RUN_FREE);
  CHECK(pages.runs[run_index(shrinks) + 1].kind == RUN_FREE);
  CHECK(pages.runs[run_index(grows) + 2].kind == RUN_META);
  pages_check();
  struct run *const all[] = {still, grows, shrinks};
  for (int i = 0; i < 3; i++) pages_free(all[i], true);
  CHECK(pages.runs[run_index(grows) + 2].kind != RUN_META);
  pages_check();
}

/* Checks that the free memory bounds the address space that windows take. */
static void windows_are_few(void) {
  enum { WINDOW = 128, MOST = 4096 };
  static struct run *runs[MOST];
  bool zero;
  size_t count = 0;
  while (count < MOST && (runs[count] = pages_alloc_in_window(1, WINDOW, RUN_LARGE, &zero)) != NULL) count++;
  CHECK_COUNT(count, >, 0);
  CHECK_COUNT(count, <, MOST);
  struct run *const run = take(WINDOW); /* memory is available all the same */
  pages_free(run, true);
  for (size_t i = 0; i < count; i++) pages_free(runs[i], true);
  pages_check();
}

/* The last run grows where nothing was before only while no free run has room for twice its size. */
static void frontier_is_last_resort(void) {
  enum { MOST = 1 << 16 };
  static struct run *runs[MOST];
  size_t count = 0;
  do runs[count++] = take(1);
  while (count < MOST && run_index(runs[count - 1]) + 1 < pages.count);
  CHECK_COUNT(count, <, MOST);
  CHECK_COUNT(count, >, 8);
  struct run *const last = runs[count - 1];
  const size_t end = pages.count;
  for (size_t i = count - 6; i < count - 2; i++) pages_free(runs[i], true);
  CHECK(!pages_resize(last, 2));
  CHECK_COUNT(pages.count, ==, end);
  runs[count - 6] = take(4);
  CHECK(pages_resize(last, 2));
  CHECK_COUNT(pages.count, >, end);
  for (size_t i = 0; i < count; i++)
    if (i < count - 5 || i > count - 3) pages_free(runs[i], true);
  pages_check();
}

enum { MANY = 1000 };

/* Every other run of `granules` in *runs; single ones lie between them. */
static void take_many(struct run **runs, struct run **walls, size_t granules) {
  for (int i = 0; i < MANY; i++) runs[i] = take(granules), walls[i] = take(1);
}

static void free_many(struct run **runs, bool clean) {
  for (int i = 0; i < MANY; i++) pages_free(runs[i], clean);
}

static size_t looks(void) { return pages_totals().looks; }

/* Runs that are a little too short do not make a search longer, in whatever number. */
static void searches_are_bounded(void) {
  static struct run *shorter[MANY], *walls[MANY], *found[MANY];
  take_many(shorter, walls, 33);
  for (int i = 0; i < MANY; i++) pages_free(shorter[i], i % 2 == 0);
  for (int i = 0; i < MANY; i++) {
    const size_t before = looks();
    found[i] = take(35);
    CHECK_COUNT(looks() - before, <=, 40);
  }
  pages_check();
  free_many(found, true);
  free_many(walls, true);
  pages_purge(UINT64_MAX, SIZE_MAX);
}

/* One look for each run that goes back, and no look at the others. */
static void purges_are_bounded(void) {
  static struct run *old[MANY], *young[MANY], *walls[MANY], *more_walls[MANY];
  const uint64_t now = 100; /* later than any test before this */
  take_many(old, walls, 1);
  take_many(young, more_walls, 1);
  pages_set_tick(now);
  free_many(old, false);
  pages_set_tick(now + 1);
  free_many(young, false);
  pages_check();
  size_t before = looks();
  CHECK_COUNT(pages_purge(now, SIZE_MAX), ==, 0);
  CHECK_COUNT(looks() - before, ==, 0);
  CHECK_COUNT(pages_purge(now + 1, SIZE_MAX), ==, MANY * GRANULE);
  CHECK_COUNT(looks() - before, ==, MANY);
  pages_check();
  pages_set_tick(now + 20); /* older than the ticks that the stamps tell apart */
  pages_check();
  before = looks();
  CHECK_COUNT(pages_purge(now + 19, MANY / 2 * GRANULE), ==, MANY / 2 * GRANULE);
  CHECK_COUNT(pages_purge(now + 19, SIZE_MAX), ==, MANY / 2 * GRANULE);
  CHECK_COUNT(looks() - before, ==, MANY);
  CHECK_COUNT(pages_free_dirty(), ==, 0);
  free_many(walls, true);
  free_many(more_walls, true);
  pages_check();
}

/* A long run goes back in few steps, because each step looks at the bits of those before. */
static void long_runs_go_back_in_few_steps(void) {
  enum { LONG = 1 << 18, STEPS = 64 }; /* 16 GiB */
  struct run *const run = take(LONG), *const wall = take(1);
  pages_free(run, false);
  size_t before = looks();
  CHECK_COUNT(pages_purge(UINT64_MAX, 3 * GRANULE), ==, 3 * GRANULE);
  CHECK_COUNT(pages_purge(UINT64_MAX, SIZE_MAX), ==, (LONG - 3) * GRANULE);
  CHECK_COUNT(looks() - before, <=, STEPS);
  CHECK_COUNT(pages_free_dirty(), ==, 0);
  pages_free(wall, true);
  pages_check();
}

static void few_runs_may_move(void) {
  struct run *runs[MOVED_RUNS_MOST + 1];
  for (int i = 0; i <= MOVED_RUNS_MOST; i++) {
    runs[i] = take(1);
    CHECK_COUNT(pages_may_move(runs[i], GRANULE), ==, i < MOVED_RUNS_MOST);
  }
  CHECK_COUNT(pages_totals().moved_runs, ==, MOVED_RUNS_MOST);
  pages_free(runs[0], false);
  CHECK(pages_may_move(runs[MOVED_RUNS_MOST], GRANULE));
  for (int i = 1; i <= MOVED_RUNS_MOST; i++) pages_free(runs[i], false);
  CHECK_COUNT(pages_totals().moved_runs, ==, 0);
}

/* A free or a shrink empties the granules that moved. Those that the run grew by keep their pages. */
static void only_moved_granules_are_emptied(void) {
  struct run *const run = take(8), *const wall = take(1);
  CHECK(pages_may_move(run, 3 * GRANULE));
  memset(run_start(run), 1, run_bytes(run));
  const size_t before = pages_free_dirty();
  CHECK(pages_resize(run, 6));
  CHECK_COUNT(pages_free_dirty() - before, ==, 2 * GRANULE);
  CHECK(pages_resize(run, 2)); /* of four granules, one had moved */
  CHECK_COUNT(pages_free_dirty() - before, ==, 5 * GRANULE);
  pages_free(run, false);
  CHECK_COUNT(pages_free_dirty() - before, ==, 5 * GRANULE);
  CHECK_COUNT(pages_totals().moved_runs, ==, 0);
  pages_free(wall, true);
  pages_check();
  pages_purge(UINT64_MAX, SIZE_MAX);
}

static volatile char *touched;
static void touch(void) { *touched = 1; }

/* In a child: no other thread lives on to touch the page, and a child of the child inherits the guard. */
static void check_forbidden(char *at, bool forbidden) {
  touched = at;
  CHECK_COUNT(in_child(touch) != 0, ==, forbidden);
}

/* The kernel guards no page that is locked: this one's guard then takes mappings. */
static void lock_page(const struct run *run, size_t granule) {
  CHECK(mlock(run_start(run) + granule * GRANULE, os_page_size) == 0);
}

static struct run *take_guarded(size_t granules, size_t used, bool locked) {
  struct run *const run = take(granules + 1);
  memset(run_start(run), 0x77, run_bytes(run));
  if (locked) lock_page(run, granules);
  pages_guard(run, used);
  CHECK(pages_has_guard(run));
  CHECK_COUNT(run->granules, ==, granules);
  return run;
}

static void check_kept(const struct run *run, size_t used) {
  for (size_t at = 0; at < used; at += LINE) CHECK_COUNT(run_start(run)[at], ==, 0x77);
}

static void guard_one(bool locked) {
  const size_t used = GRANULE + 3 * os_page_size - 100, end = GRANULE + 3 * os_page_size;
  pages_purge(UINT64_MAX, SIZE_MAX);
  struct run *run = take_guarded(2, used, locked);
  char *const start = run_start(run);
  check_forbidden(start + end - 1, false);
  check_forbidden(start + end, true);
  check_forbidden(start + 2 * GRANULE, true);
  check_forbidden(start + 3 * GRANULE - 1, true);
  CHECK(pages_run_of(start + 2 * GRANULE)->kind == RUN_META);
  check_kept(run, end);
  pages_check();

  /* The page becomes an ordinary granule again, and then a guard stands further in front. */
  CHECK(pages_unguard(run) && !pages_has_guard(run));
  CHECK_COUNT(run->granules, ==, 3);
  memset(start + end, 0x77, 3 * GRANULE - end);
  CHECK(pages_resize(run, 2));
  if (locked) lock_page(run, 1);
  pages_guard(run, GRANULE);
  check_forbidden(start + GRANULE - 1, false);
  check_forbidden(start + GRANULE, true);
  check_kept(run, GRANULE);

  pages_free_guard(run);
  CHECK(!pages_has_guard(run));
  pages_free_guard(run); /* without one nothing happens */
  pages_free(run, false);
  pages_check();
  pages_purge(UINT64_MAX, SIZE_MAX);
  bool zero;
  run = pages_alloc(3, GRANULE, RUN_LARGE, &zero, NULL);
  CHECK(run_start(run) == start);
  if (zero) CHECK(reads_zero(run));
  memset(run_start(run), 1, run_bytes(run));
  CHECK(munlock(start, 3 * GRANULE) == 0);
  pages_free(run, false);
}

/* Guards that take mappings: a limited number of them faults, all keep their runs apart, and each free makes room for
   another. */
static void few_guards_are_mapped(void) {
  enum { MOST = GUARDS_MOST + 8 };
  static struct run *runs[MOST];
  for (int i = 0; i < MOST; i++) runs[i] = take_guarded(1, GRANULE, true);
  CHECK(pages_wants_guard(false) && !pages_wants_guard(true));
  check_forbidden(run_start(runs[GUARDS_MOST - 1]) + GRANULE, true);
  check_forbidden(run_start(runs[GUARDS_MOST]) + GRANULE, false);
  CHECK(pages_unguard(runs[0]));
  for (int i = 0; i < MOST; i++) {
    pages_free_guard(runs[i]);
    munlock(run_start(runs[i]), 2 * GRANULE);
    pages_free(runs[i], false);
  }
  pages_check();
  struct run *const last = take_guarded(1, GRANULE, true);
  check_forbidden(run_start(last) + GRANULE, true);
  pages_free_guard(last);
  pages_free(last, false);
}

static void guards(void) {
  if (os_page_size != getauxval(AT_PAGESZ)) return; /* larger pages played: the kernel guards its own */
  CHECK(pages_wants_guard(true) && pages_wants_guard(false));
  guard_one(false);
  guard_one(true);
  few_guards_are_mapped();
}

static void outside(void) {
  const size_t committed = pages_totals().committed;
  CHECK(pages_run_of(NULL) == NULL && pages_run_of(&committed) == NULL && pages_run_of(pages.base) == NULL);
  CHECK(pages_run_of(pages.base + (pages.count << GRANULE_SHIFT)) == NULL);
  CHECK(pages_run_of(pages.base + (pages.count << GRANULE_SHIFT) - 1) != NULL);
}

/* A reservation that is full refuses, stays sound, and serves again after a free. */
static void full(void) {
  enum { MOST = 256, PIECE = 16 };
  static struct run *runs[MOST];
  bool zero;
  CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){256 * MiB, 256 * MiB}) == 0);
  start_floors();
  int count = 0;
  while (count < MOST && (runs[count] = pages_alloc(PIECE, GRANULE, RUN_LARGE, &zero, NULL))) count++;
  CHECK_COUNT(count, >=, 150);
  CHECK_COUNT(count, <, MOST);
  CHECK(pages_alloc(SIZE_MAX >> GRANULE_SHIFT, GRANULE, RUN_LARGE, &zero, NULL) == NULL);
  CHECK(!pages_resize(runs[count - 1], MOST * PIECE));
  CHECK_COUNT(runs[count - 1]->granules, ==, PIECE);
  pages_check();
  for (int i = 0; i < count; i += 2) pages_free(runs[i], false);
  pages_check();
  for (int i = 0; i < count; i += 2) CHECK(pages_alloc(PIECE, GRANULE, RUN_LARGE, &zero, NULL) != NULL && !zero);
  pages_check();
}

/* All address space that the process has mapped: the first number of /proc/self/statm, in pages. */
static size_t mapped_bytes(void) {
  char text[128] = "";
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
  close(file);
  return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit_to(size_t bytes) { CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, RLIM_INFINITY}) == 0); }

/* Returns the mebibytes that can be allocated. */
static int take_mebibytes(void) {
  bool zero;
  int count = 0;
  while (count < 1000 && pages_alloc(MiB / GRANULE, GRANULE, RUN_LARGE, &zero, NULL)) count++;
  pages_check();
  return count;
}

static void *map_mebibyte(void) { return mmap(NULL, MiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

/* Reserved address space without use is returned: the limit leaves room for others, holds this heap too, and a raised
   limit lets the heap grow again. */
static void held_to_a_limit(bool told) {
  start_floors();
  take(1);
  const struct pages_totals before = pages_totals();
  const size_t others = mapped_bytes() - before.reserved;
  CHECK_COUNT(before.reserved, >=, 64 * GiB);
  if (told) {
    CHECK_COUNT(pages_trim_reservation(0), >=, before.reserved - before.committed - 4 * MiB);
    CHECK_COUNT(pages_trim_reservation(0), ==, 0);
    CHECK_COUNT(mapped_bytes(), <=, others + before.committed + 4 * MiB);
  }
  limit_to(others + 64 * MiB);
  const int first = take_mebibytes();
  CHECK_COUNT(first, >=, 40);
  CHECK_COUNT(first, <, 64);
  CHECK_COUNT(mapped_bytes(), <=, others + 64 * MiB);
  limit_to(others + 128 * MiB);
  CHECK(map_mebibyte() != MAP_FAILED);
  const int second = take_mebibytes();
  CHECK_COUNT(first + second, >=, 100);
  CHECK_COUNT(first + second, <, 128);
  limit_to(RLIM_INFINITY);
  CHECK_COUNT(take_mebibytes(), ==, 1000);
}
static void told_of_a_limit(void) { held_to_a_limit(true); }
static void not_told_of_a_limit(void) { held_to_a_limit(false); }

/* A search looks at few of the runs that may be too short, but at all of them before it fails. */
static void the_last_that_fits(void) {
  enum { SHORT = 40 };
  struct run *shorter[SHORT];
  bool zero;
  limit_to(mapped_bytes() + 200 * MiB);
  start_floors();
  struct run *const fits = take(35);
  take(1);
  for (int i = 0; i < SHORT; i++) shorter[i] = take(33), take(1);
  while (pages_alloc(1, GRANULE, RUN_LARGE, &zero, NULL)) {}
  pages_free(fits, true);
  for (int i = 0; i < SHORT; i++) pages_free(shorter[i], i % 2 == 0);
  CHECK(take(35) == fits);
  CHECK(pages_alloc(35, GRANULE, RUN_LARGE, &zero, NULL) == NULL);
}

/* Enough memory for an allocator that needs little of it for itself. */
static void a_small_limit(void) {
  const size_t others = mapped_bytes();
  limit_to(others + 8 * MiB);
  start_floors();
  CHECK_COUNT(take_mebibytes(), >=, 6);
  CHECK_COUNT(mapped_bytes(), <=, others + 8 * MiB);
}

/* Under an emulator that says that it purged: freed memory stays dirty, so calloc does not take it for zeros. */
static void purges_that_do_nothing(void) {
  if (!answer_with(SYS_madvise, 0)) return;
  start_floors();
  struct run *const run = take(4);
  memset(run_start(run), 0x77, run_bytes(run));
  pages_free(run, false);
  CHECK_COUNT(pages_purge(UINT64_MAX, SIZE_MAX), ==, 0);
  CHECK_COUNT(pages_totals().purge_failures, ==, 1);
  bool zero = true;
  CHECK(pages_alloc(4, GRANULE, RUN_LARGE, &zero, NULL) == run && !zero);
}

/* An emulator applies no limit of address space and no filter; a sanitizer's runtime fails under them. */
static void in_children(void) {
  CHECK(in_child(full) == 0);
  CHECK(in_child(told_of_a_limit) == 0);
  CHECK(in_child(not_told_of_a_limit) == 0);
  CHECK(in_child(a_small_limit) == 0);
  CHECK(in_child(the_last_that_fits) == 0);
  CHECK(in_child(purges_that_do_nothing) == 0);
}

static struct run *large(size_t granules) {
  bool zero;
  return pages_alloc(granules, GRANULE, RUN_LARGE, &zero, NULL);
}

/* Free memory goes back first, then allocations fail; the library's own tables are exempt, and absent memory does not
   count. */
static void a_hard_limit_holds(void) {
  bool zero;
  pages_purge(UINT64_MAX, SIZE_MAX);
  const size_t held = pages_totals().held;
  pages_set_limits(held + 64 * GRANULE, SIZE_MAX);
  struct run *first = large(40), *second = large(20);
  CHECK(first && second && !pages_limit_refuses(GRANULE));
  CHECK(large(20) == NULL && pages_limit_refuses(20 * GRANULE));
  pages_free(first, false); /* dirty: the limit counts it until it is purged */
  CHECK_COUNT(pages_totals().held, >=, held + 60 * GRANULE);
  first = large(41);
  CHECK(first != NULL);
  CHECK_COUNT(pages_totals().limit_purged, >, 0);
  CHECK(!pages_resize(first, 60) && first->granules == 41);
  struct run *table = pages_alloc(16, GRANULE, RUN_META, &zero, NULL);
  CHECK(table != NULL && large(8) == NULL);
  pages_free(table, zero);
  pages_purge(UINT64_MAX, SIZE_MAX);
  CHECK(!pages_may_be_present(32 * GRANULE));
  pages_count_absent(32 * GRANULE);
  CHECK(pages_may_be_present(32 * GRANULE));
  struct pages_how how = {.moves_in = 41};
  pages_count_present(32 * GRANULE);
  struct run *moved = pages_alloc(41, GRANULE, RUN_LARGE, &zero, &how); /* its pages come from another run */
  CHECK(moved != NULL);
  pages_free(moved, true);
  pages_free(first, false), pages_free(second, false);
  pages_set_limits(SIZE_MAX, SIZE_MAX);
}

/* No allocation fails, free memory goes back first, and the scavenger gets a request. */
static void a_soft_limit_asks(void) {
  pages_purge(UINT64_MAX, SIZE_MAX);
  CHECK(!pages_is_pressed());
  pages_set_limits(SIZE_MAX, pages_totals().held + 64 * GRANULE);
  struct run *first = large(40), *second = large(60);
  CHECK(first && second && pages_is_pressed() && pages_is_far_beyond());
  pages_relieve();
  CHECK(!pages_is_pressed());
  pages_free(first, false);
  struct run *third = large(41);
  CHECK(third != NULL && pages_free_dirty() < 40 * GRANULE);
  pages_free(second, false), pages_free(third, false);
  pages_press();
  pages_relieve();
  CHECK_COUNT(pages_free_dirty(), ==, 0);
  CHECK(!pages_is_far_beyond());
  pages_set_limits(SIZE_MAX, SIZE_MAX);
}

/* Large free runs that are unmapped count in no limit. A piece of one serves again before the frontier moves, reads as
   zero, and joins what is free beside it. */
static void unmap_free(void) {
  enum { LARGE = 4 * MiB / GRANULE };
  struct run *const large = take(LARGE), *const edge = take(1);
  memset(run_start(large), 1, run_bytes(large));
  pages_free(large, false);
  pages_purge(UINT64_MAX, SIZE_MAX);
  const struct pages_totals before = pages_totals();
  pages_unmap_free();
  pages_check();
  const struct pages_totals after = pages_totals();
  CHECK_COUNT(before.committed - after.committed, ==, before.free_clean - after.free_clean);
  CHECK_COUNT(before.free_clean - after.free_clean, >=, LARGE * GRANULE);
  CHECK_COUNT(after.reserved, <, before.reserved);
  CHECK(pages_run_of(run_start(large))->kind == RUN_UNMAPPED);
  const size_t end = pages.count;
  struct run *const first = take(LARGE / 2), *const second = take(LARGE / 2);
  CHECK_COUNT(pages.count, ==, end);
  CHECK(reads_zero(first) && reads_zero(second));
  pages_check();
  pages_free(first, true), pages_free(second, true), pages_free(edge, false);
  pages_unmap_free();
  pages_check();
}

/* A mapping of the program's at addresses of an unmapped run stays, and the rest of the run serves. */
static void meets_a_mapping(void) {
  enum { LARGE = 8 * MiB / GRANULE, PIECE = 2 * MiB / GRANULE };
  struct run *const large = take(LARGE), *const edge = take(1);
  char *const start = run_start(large);
  pages_free(large, false);
  pages_unmap_free();
  char *const mapped = mmap(start + MiB, GRANULE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(mapped == start + MiB);
  memset(mapped, 7, GRANULE);
  const size_t end = pages.count;
  struct run *pieces[3];
  for (int i = 0; i < 3; i++) {
    pieces[i] = take(PIECE);
    memset(run_start(pieces[i]), 1, run_bytes(pieces[i]));
  }
  CHECK_COUNT(pages.count, ==, end);
  CHECK(pages_run_of(mapped)->kind == RUN_META);
  pages_check();
  for (size_t i = 0; i < GRANULE; i++) CHECK_COUNT(mapped[i], ==, 7);
  for (int i = 0; i < 3; i++) pages_free(pieces[i], false);
  pages_free(edge, false);
  pages_unmap_free();
  pages_check();
}

int main(void) {
  if (!SANITIZED && !emulated()) in_children();
  start_floors();
  against_a_map();
  ticks();
  ahead_of_need();
  smallest_that_fits();
  room_is_kept();
  room_is_given_up();
  windows_are_few();
  frontier_is_last_resort();
  few_runs_may_move();
  only_moved_granules_are_emptied();
  a_hard_limit_holds();
  a_soft_limit_asks();
  searches_are_bounded();
  purges_are_bounded();
  long_runs_go_back_in_few_steps();
  if (!SANITIZED && !emulated()) guards(); /* a sanitizer's mlock has no effect, and the process lives on */
  unmap_free();
  if (!emulated()) meets_a_mapping();
  outside();
  pages_check();
  return 0;
}
