/* destroy and reset end every block of a destroyable epoch, freed or not. */
#include "../epochs.h"

static void *fill_epoch(tslab_epoch e, uint64_t *blocks, uint64_t *bytes) {
  enum { COUNT = 2000 };
  void *last = NULL;
  *blocks = *bytes = 0;
  for (size_t i = 0; i < COUNT; i++) {
    void *block = block_in(e, i % 100 == 0 ? 100000 : i % 900);
    if (i % 3 == 0) {
      tslab_free(block);
      continue;
    }
    last = block;
    *blocks += 1;
    *bytes += tslab_malloc_usable_size(block);
  }
  return last;
}

static void needs_the_flag(void) {
  tslab_epoch_report report;
  const tslab_epoch e = open_epoch("not vouched for", 0);
  char *block = block_in(e, 100);
  CHECK_COUNT(tslab_epoch_destroy(e, &report), ==, EPERM);
  CHECK_COUNT(tslab_epoch_reset(e, &report), ==, EPERM);
  CHECK(block[99] == 0x5C);
  CHECK_COUNT(status_of(e).live_blocks, ==, 1);
  CHECK_COUNT(status_of(e).era, ==, 0);
  tslab_free(block);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  check_stale(e);
}

static void destroy_ends_all_blocks(void) {
  uint64_t blocks, bytes;
  tslab_epoch_report report;
  const tslab_epoch e = open_epoch("destroyed", TSLAB_EPOCH_DESTROYABLE), bystander = open_epoch("bystander", 0);
  unsigned char *kept = block_in(bystander, 5000);
  fill_epoch(e, &blocks, &bytes);
  const tslab_epoch_status status = status_of(e);
  CHECK_COUNT(status.live_blocks, ==, blocks);
  CHECK_COUNT(status.live_bytes, ==, bytes);
  memset(&report, 0xFF, sizeof report);
  CHECK_COUNT(tslab_epoch_destroy(e, &report), ==, 0);
  CHECK_COUNT(report.epoch, ==, e);
  CHECK_COUNT(report.threads_inside, ==, 0);
  CHECK_COUNT(report.live_blocks, ==, blocks);
  CHECK_COUNT(report.live_bytes, ==, bytes);
  CHECK_COUNT(report.slabs_pinned, ==, status.slabs_pinned);
  CHECK_COUNT(report.bytes_recycled + report.bytes_returned, >=, bytes);
  /* Tables that served only this epoch may go back with it: less than a sixteenth. */
  CHECK_COUNT(report.bytes_recycled + report.bytes_returned, <=, status.committed_bytes / 16 * 17);
  for (size_t i = 0; i < sizeof report.reserved / 8; i++) CHECK_COUNT(report.reserved[i], ==, 0);
  check_stale(e);
  for (int i = 0; i < 5000; i++) CHECK(kept[i] == 0x5C);
  tslab_free(kept);
  CHECK_COUNT(tslab_epoch_close(bystander, NULL), ==, 0);
}

static void an_empty_one(void) {
  const tslab_epoch e = open_epoch("empty", TSLAB_EPOCH_DESTROYABLE);
  tslab_epoch_report report;
  CHECK_COUNT(tslab_epoch_reset(e, &report), ==, 0);
  CHECK_COUNT(report.live_blocks, ==, 0);
  CHECK_COUNT(report.bytes_recycled + report.bytes_returned, <=, GRANULE); /* ready for its first block */
  CHECK_COUNT(status_of(e).era, ==, 1);
  CHECK_COUNT(tslab_epoch_destroy(e, &report), ==, 0);
  CHECK_COUNT(report.live_blocks, ==, 0);
  check_stale(e);
}

static void nobody_may_be_inside(void) {
  uint64_t blocks, bytes;
  struct guest guest;
  const tslab_epoch e = open_epoch("busy", TSLAB_EPOCH_DESTROYABLE);
  char *block = fill_epoch(e, &blocks, &bytes);
  guest_start(&guest, e, NULL);
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, EBUSY);
  CHECK_COUNT(tslab_epoch_reset(e, NULL), ==, EBUSY);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  CHECK_COUNT(tslab_epoch_reset(e, NULL), ==, EBUSY); /* the caller is inside, and another thread too */
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  guest_end(&guest);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(0), ==, 0);
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, EBUSY); /* also when it is the caller, below its innermost scope */
  CHECK_COUNT(tslab_epoch_leave(0), ==, 0);
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, EBUSY);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(tslab_epoch_switch(e), ==, 0);
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, EBUSY); /* a thread that switched to the epoch is inside */
  CHECK_COUNT(tslab_epoch_switch(0), ==, e);
  CHECK_COUNT(status_of(e).live_blocks, ==, blocks); /* the refused call changed nothing */
  CHECK_COUNT(status_of(e).live_bytes, ==, bytes);
  CHECK_COUNT(status_of(e).era, ==, 0);
  CHECK(block[0] == 0x5C);
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
  check_stale(e);
}

/* A server's loop: inside, reset at the end of each request. */
static void reset_from_inside(void) {
  enum { ROUNDS = 3000 / TEST_SCALE, BLOCKS = 200 };
  static void *blocks[BLOCKS];
  tslab_epoch_report report;
  const tslab_epoch e = open_epoch("request", TSLAB_EPOCH_DESTROYABLE);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  for (uint64_t era = 0; era < ROUNDS; era++) {
    CHECK_COUNT(status_of(e).era, ==, era);
    uint64_t bytes = 0, freed = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
      blocks[i] = block_here(i * 5);
      CHECK_COUNT(tslab_epoch_of(blocks[i]), ==, e);
      bytes += tslab_malloc_usable_size(blocks[i]);
    }
    for (size_t i = 0; i < BLOCKS; i += era % 7 + 2) {
      bytes -= tslab_malloc_usable_size(blocks[i]);
      tslab_free(blocks[i]);
      freed++;
    }
    CHECK_COUNT(tslab_epoch_reset(e, &report), ==, 0);
    CHECK_COUNT(report.epoch, ==, e);
    CHECK_COUNT(report.threads_inside, ==, 1);
    CHECK_COUNT(report.live_blocks, ==, BLOCKS - freed);
    CHECK_COUNT(report.live_bytes, ==, bytes);
    CHECK_COUNT(tslab_epoch_current(), ==, e);
    const tslab_epoch_status status = status_of(e);
    CHECK_COUNT(status.state, ==, TSLAB_EPOCH_OPEN);
    CHECK_COUNT(status.threads_inside, ==, 1);
    CHECK_COUNT(status.live_blocks, ==, 0);
    CHECK_COUNT(status.committed_bytes, <=, 2 * GRANULE); /* empty: memory stays for its next block */
  }
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
  check_stale(e);
}

static void reset_after_every_kind_of_block(void) {
  const tslab_epoch e = open_epoch("all kinds", TSLAB_EPOCH_DESTROYABLE);
  for (uint64_t era = 0; era < 20; era++) {
    uint64_t blocks, bytes;
    tslab_epoch_report report;
    fill_epoch(e, &blocks, &bytes);
    CHECK_COUNT(tslab_epoch_reset(e, &report), ==, 0);
    CHECK_COUNT(report.live_blocks, ==, blocks);
    CHECK_COUNT(report.live_bytes, ==, bytes);
    CHECK_COUNT(report.bytes_recycled + report.bytes_returned, >, 0);
    CHECK_COUNT(status_of(e).era, ==, era + 1);
    CHECK_COUNT(status_of(e).live_blocks, ==, 0);
    CHECK_COUNT(status_of(e).slabs_pinned, ==, 0);
  }
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  check_stale(e);
}

static void *leaves_blocks(void *argument) {
  const tslab_epoch e = *(const tslab_epoch *)argument;
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  for (size_t i = 0; i < 1000; i++) {
    void *block = block_here(i);
    if (i % 2) tslab_free(block);
  }
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  return NULL;
}

/* Threads that ended left blocks, and this thread, which was inside too, has lists: nothing of one era reaches the
   next. */
static void blocks_of_other_threads(void) {
  static unsigned char *blocks[1000];
  const tslab_epoch e = open_epoch("others'", TSLAB_EPOCH_DESTROYABLE);
  for (int era = 0; era < 5; era++) {
    tslab_epoch_report report;
    tslab_epoch id = e;
    elsewhere(leaves_blocks, &id);
    elsewhere(leaves_blocks, &id);
    leaves_blocks(&id);
    CHECK_COUNT(tslab_epoch_reset(e, &report), ==, 0);
    CHECK_COUNT(report.live_blocks, ==, 1500);
    for (size_t i = 0; i < 1000; i++) {
      blocks[i] = block_in(e, i);
      memset(blocks[i], (int)i, i);
    }
    for (size_t i = 0; i < 1000; i++)
      for (size_t j = 0; j < i; j++) CHECK(blocks[i][j] == (unsigned char)i);
    CHECK_COUNT(status_of(e).live_blocks, ==, 1000);
    CHECK_COUNT(tslab_epoch_reset(e, NULL), ==, 0);
  }
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
  check_stale(e);
}

int main(void) {
  needs_the_flag();
  destroy_ends_all_blocks();
  an_empty_one();
  nobody_may_be_inside();
  reset_from_inside();
  reset_after_every_kind_of_block();
  blocks_of_other_threads();
  return 0;
}
