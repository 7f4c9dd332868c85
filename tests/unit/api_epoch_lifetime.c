/* AUTO_CLOSE and advance: epochs that end with a scope. */
#include "../epochs.h"

static void closes_with_the_last_leave(void) {
  const tslab_epoch e = open_epoch("auto", TSLAB_EPOCH_AUTO_CLOSE);
  tslab_free(block_in(e, 100)); /* not entered yet: stays open */
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_OPEN);
  struct guest guest;
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  void *block = block_here(100);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_OPEN);
  guest_start(&guest, e, NULL);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_OPEN); /* the guest is inside */
  guest_end(&guest);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_CLOSING); /* and the block lives on */
  check_refused(e, ESHUTDOWN);
  memset(block, 1, 100);
  tslab_free(block);
  check_stale(e);
}

static void closes_with_every_kind_of_leave(void) {
  tslab_epoch e = open_epoch("unwound", TSLAB_EPOCH_AUTO_CLOSE);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  tslab_scope_unwind(0);
  check_stale(e);

  e = open_epoch("switched", TSLAB_EPOCH_AUTO_CLOSE);
  CHECK_COUNT(tslab_epoch_switch(e), ==, 0);
  CHECK_COUNT(tslab_epoch_switch(0), ==, e);
  check_stale(e);

  e = open_epoch("explicit", TSLAB_EPOCH_AUTO_CLOSE); /* closed by hand while inside: the leave does not close twice */
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  check_stale(e);

  e = open_epoch("by hand", 0); /* without the flag a leave closes nothing */
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_OPEN);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  check_stale(e);
}

static void advancing(void) {
  enum { ROUNDS = 2000 / TEST_SCALE };
  tslab_epoch_report report;
  memset(&report, 0xFF, sizeof report);
  tslab_epoch last = tslab_epoch_advance("first", &report);
  CHECK(last != 0);
  CHECK_COUNT(tslab_epoch_current(), ==, last);
  CHECK_COUNT(tslab_scope_depth(), ==, 1);
  CHECK(strcmp(status_of(last).label, "first") == 0);
  void *pin = NULL;
  for (int i = 0; i < ROUNDS; i++) {
    void *blocks[10];
    for (int j = 0; j < 10; j++) blocks[j] = block_here((size_t)j * 50);
    for (int j = i % 100 == 0; j < 10; j++) tslab_free(blocks[j]);
    const tslab_epoch next = tslab_epoch_advance("next", &report);
    CHECK(next != 0 && next != last);
    CHECK_COUNT(report.epoch, ==, last);
    CHECK_COUNT(report.live_blocks, ==, i % 100 == 0);
    CHECK_COUNT(report.threads_inside, ==, 0);
    CHECK_COUNT(tslab_epoch_current(), ==, next);
    CHECK_COUNT(tslab_scope_depth(), ==, 1);
    if (i % 100 == 0) {
      CHECK_COUNT(tslab_epoch_of(blocks[0]), ==, last);
      CHECK_COUNT(status_of(last).state, ==, TSLAB_EPOCH_CLOSING);
      tslab_free(pin);
      pin = blocks[0];
    } else {
      check_stale(last);
    }
    last = next;
  }
  tslab_free(pin);
  CHECK_COUNT(tslab_epoch_leave(last), ==, 0);
  CHECK_COUNT(tslab_epoch_close(last, NULL), ==, 0);
  check_stale(last);
}

static void *advances_too(void *argument) {
  tslab_epoch_report report;
  const tslab_epoch of_the_other = *(const tslab_epoch *)argument;
  const tslab_epoch mine = tslab_epoch_advance("second thread", &report);
  CHECK(mine != 0 && mine != of_the_other);
  CHECK_COUNT(status_of(of_the_other).state, ==, TSLAB_EPOCH_OPEN);
  CHECK_COUNT(tslab_epoch_leave(mine), ==, 0);
  CHECK_COUNT(tslab_epoch_close(mine, NULL), ==, 0);
  return NULL;
}

/* Each thread advances for itself, also a thread that never did so before. */
static void *advance_is_the_threads_own(void *unused) {
  tslab_epoch e = tslab_epoch_advance("first thread", NULL);
  CHECK(e != 0);
  elsewhere(advances_too, &e);
  CHECK_COUNT(tslab_epoch_current(), ==, e);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  return unused;
}

int main(void) {
  closes_with_the_last_leave();
  closes_with_every_kind_of_leave();
  advancing();
  elsewhere(advance_is_the_threads_own, NULL);
  return 0;
}
