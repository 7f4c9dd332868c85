/* trap: each touch of an ended epoch's memory faults, and the message names the epoch; other faults and other handlers
 * work as before. */
#include "unit.h"

#include "epoch/open.h"
#include "epoch/trap.h"

static struct run *trapped;
static size_t offset;

static void set(void) {
  int error;
  bool zero;
  const uint64_t id = epoch_open(&(tslab_epoch_options){.label = "a request"}, &error);
  trapped = pages_alloc(3, GRANULE, RUN_LARGE, &zero, NULL);
  CHECK(id != 0 && trapped != NULL);
  trapped->epoch = epoch_index(id);
  memset(run_start(trapped), 1, run_bytes(trapped));
  CHECK(trap_set(trapped));
  CHECK(trapped->kind == RUN_TRAP && trapped->granules == 3);
  CHECK(trapped->epoch == epoch_index(id) && trapped->size == id);
}

static void touch(void) { *(volatile char *)(run_start(trapped) + offset) = 1; }
static char *volatile nowhere;
static void touch_nothing(void) { *nowhere = 1; }

static void (*fault)(void);
static int status;
static void run(void) { status = in_child(fault); }

static void check_fault(void (*body)(void), const char *expected) {
  char text[500];
  fault = body;
  CHECK_COUNT(hear(run, text, sizeof text), ==, *expected != 0);
  CHECK(strcmp(text, expected) == 0);
  CHECK_COUNT(status, ==, 7 << 8);
}

/* The handler that runs after the trap printed its message. */
static void handled(int signal) { _exit(signal == SIGSEGV ? 7 : 1); }

int main(void) {
  char expected[200];
  start_floors();
  signal(SIGSEGV, handled);
  set();
  for (offset = 0; offset < 3 * GRANULE; offset += GRANULE - 1) {
    snprintf(expected, sizeof expected, "tslab: use of %p after destroy of epoch %zu \"a request\"\n",
             (void *)(run_start(trapped) + offset), trapped->size);
    check_fault(touch, expected);
  }
  check_fault(touch_nothing, "");
  return 0;
}
