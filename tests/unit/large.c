/* large: blocks above the classes, resized at random: contents, usable size, alignment and totals stay right. */
#include "unit.h"

#include "slab/large.h"

enum { SLOTS = 24 };

struct slot {
  char *block;
  size_t size;
  char fill;
};
static struct slot slots[SLOTS];
static uint64_t random_state = 1;
static uint64_t allocated, freed;
static struct large_counts counts;

static size_t usable(size_t size) { return round_up(size, size > SMALL_MAX ? os_page_size : 16); }

static size_t draw(size_t n) { return check_random(&random_state) % n; }

/* Sizes below and above the one from which the kernel moves pages. */
static size_t a_size(void) { return SMALL_MAX + 1 + (draw(3) ? draw(256 * KiB) : draw(3 * MiB)); }

/* Writes a byte of each page. */
static void fill(struct slot *s) {
  for (size_t at = 0; at < s->size; at += os_page_size) s->block[at] = s->fill;
}

static void check_first(const struct slot *s, const char *block, size_t size) {
  for (size_t at = 0; at < size; at += os_page_size) CHECK_COUNT(block[at], ==, s->fill);
}

static void check_run(const struct slot *s) {
  const struct run *const run = pages_run_of(s->block);
  CHECK(run != NULL && run->kind == RUN_LARGE && run_start(run) == s->block);
  CHECK_COUNT(run->size, ==, usable(s->size));
  CHECK_COUNT(run->size, <=, run_bytes(run));
}

static void allocate(struct slot *s) {
  const size_t alignment = (size_t)16 << draw(18);
  struct pages_how how = {.wants_zero = draw(4) == 0};
  *s = (struct slot){.size = a_size(), .fill = (char)(1 + draw(127))};
  s->block = large_alloc(s->size, alignment, &how, &counts);
  CHECK(s->block != NULL);
  CHECK_COUNT((uintptr_t)s->block % alignment, ==, 0);
  if (how.wants_zero)
    for (size_t at = 0; at < s->size; at++) CHECK_COUNT(s->block[at], ==, 0);
  check_run(s);
  fill(s);
  allocated++;
}

/* A block that moved counts as one more allocated and freed. */
static void resize(struct slot *s) {
  const size_t before = s->size;
  s->size = a_size();
  char *const block = large_resize(pages_run_of(s->block), s->size, &counts);
  CHECK(block != NULL);
  if (block != s->block) allocated++, freed++;
  s->block = block;
  check_run(s);
  check_first(s, block, min_size(before, s->size));
  fill(s);
}

static void release(struct slot *s) {
  check_first(s, s->block, s->size);
  struct run *const run = pages_run_of(s->block);
  large_retire(run, &counts);
  CHECK_COUNT(run->was, ==, LARGE_WAS);
  if (draw(4) == 0) { /* its run serves another, of as many granules */
    s->size = large_run_bytes(s->size) - draw(GRANULE);
    CHECK(large_again(run, s->size, &counts) == s->block);
    check_run(s);
    allocated++, freed++;
    large_retire(run, &counts);
  }
  pages_free(run, false);
  s->block = NULL;
  freed++;
}

static void check_totals(void) {
  uint64_t live = 0;
  for (int i = 0; i < SLOTS; i++) live += slots[i].block ? usable(slots[i].size) : 0;
  struct large_counts totals = {0};
  large_add_freed(&totals, &counts);
  large_add_allocated(&totals, &counts);
  CHECK_COUNT(totals.allocations, ==, allocated);
  CHECK_COUNT(totals.frees, ==, freed);
  CHECK_COUNT(totals.allocated_bytes - totals.freed_bytes, ==, live);
  CHECK_COUNT(pages_totals().moved_runs, <=, MOVED_RUNS_MOST);
}

/* Without memory for more, the call returns NULL and changes nothing. */
static void refused(void) {
  struct slot *const s = &slots[0];
  allocate(s);
  CHECK(large_alloc((size_t)PTRDIFF_MAX, GRANULE, NULL, &counts) == NULL);
  CHECK(large_resize(pages_run_of(s->block), (size_t)PTRDIFF_MAX, &counts) == NULL);
  check_run(s);
  check_totals();
  release(s);
}

int main(void) {
  start_floors();
  for (int i = 0; i < 5000 / TEST_SCALE; i++) {
    struct slot *const s = &slots[draw(SLOTS)];
    if (!s->block) allocate(s);
    else if (draw(4)) resize(s);
    else release(s);
    check_totals();
    if (i % 100 == 0) pages_purge(UINT64_MAX, SIZE_MAX);
  }
  for (int i = 0; i < SLOTS; i++)
    if (slots[i].block) release(&slots[i]);
  check_totals();
  refused();
  CHECK_COUNT(pages_totals().moved_runs, ==, 0);
  pages_check();
  return 0;
}
