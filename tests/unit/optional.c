/* optional.h: one program runs with the library and without. Its argument says which, and so the expected results. */
#include <tslab/optional.h>

#include "../check.h"

tslab_epoch check_cxx(bool with); /* optional_cxx.cc: epoch.hpp in the same program */

static tslab_epoch_report filled(void) {
  tslab_epoch_report report;
  memset(&report, 0xEE, sizeof report);
  return report;
}

static void check_report(const tslab_epoch_report *report, tslab_epoch e, uint64_t live) {
  CHECK_COUNT(report->epoch, ==, e);
  CHECK_COUNT(report->live_blocks, ==, live);
  CHECK_COUNT(report->reserved[0], ==, 0);
}

/* An epoch with a scope, as any server has it: the source is the same with and without the library. */
static void a_server_notices_nothing(bool with) {
  const tslab_epoch e = tslab_epoch_open("request");
  CHECK(e != 0);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  char *const kept = malloc(100), *const moved = realloc(malloc(10), 1000);
  CHECK_COUNT(tslab_epoch_of(kept), ==, (with ? e : 0));
  CHECK_COUNT(tslab_epoch_current(), ==, (with ? e : 0));
  CHECK_COUNT(tslab_scope_depth(), ==, with);
  CHECK(tslab_owns(kept) == with);
  free(moved);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  tslab_epoch_report report = filled();
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  check_report(&report, e, with);
  strcpy(kept, "valid after the close");
  free(kept);
}

static void every_call_has_an_answer(bool with) {
  const tslab_epoch_options options = {.struct_size = sizeof options, .flags = TSLAB_EPOCH_DESTROYABLE};
  tslab_epoch_report report = filled();
  tslab_epoch_status status;
  const tslab_epoch e = tslab_epoch_open_with(&options);
  CHECK(e != 0);

  CHECK_COUNT(tslab_epoch_switch(e), ==, 0);
  CHECK_COUNT(tslab_epoch_switch(0), ==, (with ? e : 0));
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  tslab_scope_unwind(0);
  CHECK_COUNT(tslab_scope_depth(), ==, 0);

  char *const zeros = tslab_epoch_calloc(e, 10, 10), *const aligned = tslab_epoch_aligned_alloc(e, 4096, 4096);
  void *const block = tslab_epoch_malloc(e, 100);
  CHECK(zeros != NULL && zeros[99] == 0 && aligned != NULL && (uintptr_t)aligned % 4096 == 0 && block != NULL);
  void *moved = tslab_epoch_move(zeros, 0);
  tslab_slab_use use;
  CHECK(moved != NULL && (moved != zeros) == with && tslab_epoch_of(moved) == 0);
  CHECK_COUNT(tslab_occupancy(&moved, 1, &use), ==, (with ? 0 : ENOSYS));
  tslab_free(moved);
  tslab_free(aligned);
  free(block); /* the same */

  CHECK_COUNT(tslab_epoch_info(e, &status), ==, (with ? 0 : ENOSYS));
  CHECK_COUNT(tslab_epoch_reset(e, NULL), ==, (with ? 0 : ENOSYS));
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, (with ? 0 : ENOSYS));

  const tslab_epoch stepped = tslab_epoch_open("stepped"), first = tslab_epoch_advance("first", &report);
  CHECK(stepped != 0 && first != 0 && stepped != first && first != e);
  const tslab_epoch second = tslab_epoch_advance("second", &report);
  CHECK(second != first);
  CHECK_COUNT(report.live_blocks, ==, 0);
  tslab_scope_unwind(0);
  CHECK_COUNT(tslab_epoch_close(second, NULL), ==, 0);
  int error = EAGAIN;
  while (error == EAGAIN) error = tslab_epoch_close_step(stepped, 1000000, &report);
  CHECK_COUNT(error, ==, 0);
  check_report(&report, stepped, 0);

  tslab_stats_global global;
  tslab_class_stats of_class;
  CHECK_COUNT(tslab_stats(&global, sizeof global), ==, (with ? 0 : ENOSYS));
  CHECK_COUNT(tslab_stats_class(0, &of_class, sizeof of_class), ==, (with ? 0 : ENOSYS));
  CHECK((strncmp(tslab_version(), "temporal-slab 0", 15) == 0) == with);
  (void)tslab_purge();
}

static int count(const tslab_epoch_status *status, void *arg) {
  (void)status;
  ++*(int *)arg;
  return 0;
}

static void epochs_are_visited_if_there_are_any(bool with) {
  int visited = 0;
  const tslab_epoch e = tslab_epoch_open("visited");
  CHECK_COUNT(tslab_epoch_each(count, &visited), ==, 0);
  CHECK_COUNT(visited, ==, with);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
}

/* A missing handle is better than an unchecked one. */
static void handles_are_kept_or_refused(bool with) {
  void *block = &block;
  errno = 0;
  const tslab_handle handle = tslab_handle_alloc(0, 100, &block);
  CHECK((handle != 0) == with);
  CHECK((block != NULL) == with);
  if (!with) CHECK_COUNT(errno, ==, ENOSYS);
  CHECK(tslab_handle_get(handle) == block);
  CHECK(tslab_handle_free(handle) == with);
  CHECK(!tslab_handle_free(handle));
}

int main(int argc, char **argv) {
  CHECK_COUNT(argc, ==, 2);
  const bool with = strcmp(argv[1], "with") == 0;
  CHECK(with || strcmp(argv[1], "without") == 0);
  CHECK(tslab_available() == with);
  a_server_notices_nothing(with);
  every_call_has_an_answer(with);
  epochs_are_visited_if_there_are_any(with);
  handles_are_kept_or_refused(with);
  const tslab_epoch from_cxx = check_cxx(with), mine = tslab_epoch_open("mine");
  CHECK_COUNT(mine, !=, from_cxx); /* no two opens return the same id */
  return 0;
}
