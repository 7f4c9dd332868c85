/* close and close_step: blocks stay valid, later calls fail, and the memory goes back in time. */
#include "../epochs.h"

/* The last free ends the epoch, on whichever thread it happens. */
static void *free_it(void *block) {
  tslab_free(block);
  return NULL;
}

static void check_report(const tslab_epoch_report *report, tslab_epoch e, uint64_t threads_inside) {
  CHECK_COUNT(report->epoch, ==, e);
  CHECK_COUNT(report->threads_inside, ==, threads_inside);
  CHECK_COUNT(report->rss_before, ==, 0);
  CHECK_COUNT(report->rss_after, ==, 0);
  for (size_t i = 0; i < sizeof report->reserved / 8; i++) CHECK_COUNT(report->reserved[i], ==, 0);
}

static void an_empty_one_is_gone_at_once(void) {
  tslab_epoch_report report;
  memset(&report, 0xFF, sizeof report);
  tslab_epoch e = open_epoch("never used", 0);
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  check_report(&report, e, 0);
  CHECK_COUNT(report.live_blocks, ==, 0);
  CHECK_COUNT(report.live_bytes, ==, 0);
  CHECK_COUNT(report.slabs_pinned, ==, 0);
  CHECK_COUNT(report.bytes_recycled + report.bytes_returned, <=, GRANULE); /* ready for its first block */
  check_stale(e);

  e = open_epoch("drained", 0);
  void *blocks[300];
  for (int i = 0; i < 300; i++) blocks[i] = block_in(e, (size_t)i * 20);
  for (int i = 0; i < 300; i++) tslab_free(blocks[i]);
  memset(&report, 0xFF, sizeof report);
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  check_report(&report, e, 0);
  CHECK_COUNT(report.live_blocks, ==, 0);
  CHECK_COUNT(report.live_bytes, ==, 0);
  CHECK_COUNT(report.slabs_pinned, ==, 0);
  check_stale(e);
}

static void live_blocks_stay_valid(void) {
  enum { COUNT = 3000 };
  static unsigned char *blocks[COUNT];
  uint64_t bytes = 0;
  tslab_epoch_report report;
  const tslab_epoch e = open_epoch("pinned", 0);
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = block_in(e, 30 + (size_t)i % 700);
    memset(blocks[i], i % 251, 30 + (size_t)i % 700);
  }
  for (int i = 0; i < COUNT; i++)
    if (i % 100 != 0) tslab_free(blocks[i]);
    else bytes += tslab_malloc_usable_size(blocks[i]);
  unsigned char *large = block_in(e, 1 << 20);
  bytes += tslab_malloc_usable_size(large);
  memset(large, 77, 1 << 20);

  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  check_report(&report, e, 0);
  CHECK_COUNT(report.live_blocks, ==, COUNT / 100 + 1);
  CHECK_COUNT(report.live_bytes, ==, bytes);
  tslab_epoch_status status = status_of(e);
  CHECK_COUNT(status.state, ==, TSLAB_EPOCH_CLOSING);
  CHECK_COUNT(status.live_blocks, ==, report.live_blocks);
  CHECK_COUNT(status.live_bytes, ==, bytes);
  CHECK_COUNT(status.slabs_pinned, ==, report.slabs_pinned);
  CHECK_COUNT(status.slabs, ==, status.slabs_pinned); /* every second block is freed */

  /* Other threads allocate and free meanwhile, and do not change these blocks. */
  for (int i = 0; i < 20000; i++) tslab_free(block_here((size_t)i % 900));
  for (int i = 0; i < COUNT; i += 100)
    for (size_t j = 0; j < 30 + (size_t)i % 700; j++) CHECK(blocks[i][j] == i % 251);
  for (size_t j = 0; j < 1 << 20; j++) CHECK(large[j] == 77);

  uint64_t committed = status.committed_bytes;
  CHECK_COUNT(tslab_epoch_of(large), ==, e);
  tslab_free(large);
  status = status_of(e);
  CHECK_COUNT(committed - status.committed_bytes, >=, 1 << 20);
  for (int i = 0; i < COUNT; i += 100) {
    committed = status_of(e).committed_bytes;
    const uint64_t pinned = status_of(e).slabs_pinned;
    if (i % 200) elsewhere(free_it, blocks[i]);
    else tslab_free(blocks[i]);
    if (i == COUNT - 100) break;
    status = status_of(e);
    /* At once: a slab whose last block was freed is no longer held. */
    CHECK_COUNT(status.slabs, ==, status.slabs_pinned);
    if (status.slabs_pinned < pinned) CHECK_COUNT(status.committed_bytes, <, committed);
  }
  check_stale(e);
}

static void one_block_pins_one_slab(void) {
  const size_t sizes[] = {1, 100, 5000, 30000, 100000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tslab_epoch_report report;
    const tslab_epoch e = open_epoch("pin", 0);
    void *block = block_in(e, sizes[i]);
    CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
    CHECK_COUNT(report.slabs_pinned, ==, 1);
    CHECK_COUNT(report.live_blocks, ==, 1);
    CHECK_COUNT(report.live_bytes, ==, tslab_malloc_usable_size(block));
    CHECK_COUNT(status_of(e).slabs, ==, 1);
    if (i % 2) elsewhere(free_it, block);
    else tslab_free(block);
    check_stale(e);
  }
}

static void closing_refuses(void) {
  tslab_epoch_report first, again;
  memset(&again, 0xFF, sizeof again);
  const tslab_epoch e = open_epoch("closing", TSLAB_EPOCH_DESTROYABLE);
  void *block = block_in(e, 100);
  CHECK_COUNT(tslab_epoch_close(e, &first), ==, 0);
  check_refused(e, ESHUTDOWN);
  CHECK_COUNT(tslab_epoch_close(e, &again), ==, ESHUTDOWN);
  check_report(&again, e, 0);
  CHECK_COUNT(again.live_blocks, ==, 1);
  CHECK_COUNT(again.live_bytes, ==, first.live_bytes);
  CHECK_COUNT(again.slabs_pinned, ==, 1);
  tslab_free(block);
  check_stale(e);
}

/* A resize in place leaves the block in its epoch; a move copies the contents to epoch 0. */
static void realloc_in_a_closing_epoch(void) {
  const size_t sizes[] = {20, 100, 3000, 20000, 200000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const tslab_epoch e = open_epoch("realloc", 0), inside = open_epoch("current", 0);
    unsigned char *stays = block_in(e, sizes[i]), *moves = block_in(e, sizes[i]);
    CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
    CHECK_COUNT(tslab_epoch_enter(inside), ==, 0);
    CHECK(tslab_realloc(stays, tslab_malloc_usable_size(stays)) == stays);
    CHECK_COUNT(tslab_epoch_of(stays), ==, e);
    unsigned char *const moved = tslab_realloc(moves, 3 << 20);
    CHECK(moved != NULL);
    /* A large block may have grown where it was. */
    CHECK_COUNT(tslab_epoch_of(moved), ==, (moved == moves ? e : 0));
    for (size_t j = 0; j < sizes[i]; j++) CHECK(moved[j] == 0x5C);
    CHECK_COUNT(tslab_epoch_leave(inside), ==, 0);
    CHECK_COUNT(tslab_epoch_close(inside, NULL), ==, 0);
    tslab_free(stays);
    tslab_free(moved);
    check_stale(e);
  }
}

static void several_close_side_by_side(void) {
  enum { COUNT = 100 };
  static tslab_epoch epochs[COUNT];
  static void *blocks[COUNT];
  for (int i = 0; i < COUNT; i++) blocks[i] = block_in(epochs[i] = open_epoch("one of many", 0), 200);
  for (int i = 0; i < COUNT; i++) CHECK_COUNT(tslab_epoch_close(epochs[i], NULL), ==, 0);
  for (int i = 0; i < COUNT; i++) CHECK_COUNT(status_of(epochs[i]).state, ==, TSLAB_EPOCH_CLOSING);
  for (int i = COUNT - 1; i >= 0; i--) {
    CHECK_COUNT(tslab_epoch_of(blocks[i]), ==, epochs[i]);
    tslab_free(blocks[i]);
    check_stale(epochs[i]);
  }
}

/* close_step: no new allocations after the first step; a bounded number of steps reaches the same end as close. */
static void step_by_step(bool pinned) {
  enum { COUNT = 2000 };
  static void *blocks[COUNT];
  tslab_epoch_report report;
  int error, steps = 0;
  const tslab_epoch e = open_epoch("paced", 0);
  for (int i = 0; i < COUNT; i++) blocks[i] = block_in(e, 8000);
  void *pin = pinned ? block_in(e, 100) : NULL;
  for (int i = 0; i < COUNT; i++) tslab_free(blocks[i]);
  while ((error = tslab_epoch_close_step(e, 1, &report)) == EAGAIN) {
    CHECK_COUNT(tslab_epoch_enter(e), ==, ESHUTDOWN);
    CHECK(tslab_epoch_malloc(e, 10) == NULL && errno == ESHUTDOWN);
    CHECK_COUNT(++steps, <, 100000);
  }
  CHECK_COUNT(error, ==, 0);
  check_report(&report, e, 0);
  CHECK_COUNT(report.live_blocks, ==, pinned);
  CHECK_COUNT(report.slabs_pinned, ==, pinned);
  if (pinned) CHECK_COUNT(status_of(e).slabs, ==, 1);
  tslab_free(pin);
  check_stale(e);
}

int main(void) {
  an_empty_one_is_gone_at_once();
  live_blocks_stay_valid();
  one_block_pins_one_slab();
  closing_refuses();
  realloc_in_a_closing_epoch();
  several_close_side_by_side();
  step_by_step(false);
  step_by_step(true);
  return 0;
}
