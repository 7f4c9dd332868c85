/* hazards.c: the runs of a hazard. */
#include "hazards.h"

static tslab_epoch first_call(const char *label, hazard_function *first) {
  const tslab_epoch e = open_epoch(label, TSLAB_EPOCH_DESTROYABLE);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  first();
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  return e;
}

/* Allocates, so that memory which the epoch wrongly gave back is used again. */
static void disturb(void) {
  enum { COUNT = 3000 };
  static void *blocks[COUNT];
  for (size_t i = 0; i < COUNT; i++) memset(blocks[i] = block_here(i), 0xEE, i);
  for (size_t i = 0; i < COUNT; i++) tslab_free(blocks[i]);
}

void hazard_closed(const char *label, hazard_function *first, hazard_function *later, bool leaves) {
  tslab_epoch_report report;
  const tslab_epoch e = first_call(label, first);
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  CHECK_COUNT(report.live_blocks > 0, ==, leaves);
  disturb();
  later();
}

void hazard_destroyed(const char *label, hazard_function *first, hazard_function *later, bool leaves) {
  tslab_epoch_report report;
  tslab_epoch_status status;
  const tslab_epoch e = first_call(label, first);
  CHECK_COUNT(tslab_epoch_destroy(e, &report), ==, 0);
  CHECK_COUNT(report.live_blocks > 0, ==, leaves);
  /* Under check a destroy is a close. */
  const bool checks = strcmp(getenv("TSLAB_ON_DESTROY"), "check") == 0;
  CHECK_COUNT(tslab_epoch_info(e, &status), ==, (checks && leaves ? 0 : ESTALE));
  disturb();
  later();
}
