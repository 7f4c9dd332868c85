/* Epochs and the statistics of the process: totals of blocks are exact, and memory goes back when an epoch ends.
 * No scavenger runs, which would empty the reserve while an end fills it. `reported` runs with TSLAB_REPORT_RSS=1 and
 * TSLAB_RESERVE=0. */
#include "../epochs.h"
#include "../stress/memory.h"

enum { MIB = 1 << 20, SLACK = MIB + 256 * 1024 }; /* the reserve of ready memory, and other memory that may change */

static tslab_stats_global stats(void) {
  tslab_stats_global now;
  CHECK(tslab_stats(&now, sizeof now) == 0);
  CHECK_COUNT(now.allocations - now.frees, ==, now.live_blocks);
  return now;
}

struct counted {
  void *blocks[4000];
  uint64_t bytes;
};

static void allocate(struct counted *counted, tslab_epoch e) {
  counted->bytes = 0;
  for (size_t i = 0; i < 4000; i++) {
    counted->blocks[i] = block_in(e, i % 500 == 0 ? 100000 : i % 1500);
    counted->bytes += tslab_malloc_usable_size(counted->blocks[i]);
  }
}

static void check_moved(const tslab_stats_global *before, uint64_t blocks, uint64_t bytes) {
  const tslab_stats_global now = stats();
  CHECK_COUNT(now.live_blocks - before->live_blocks, ==, blocks);
  CHECK_COUNT(now.live_bytes - before->live_bytes, ==, bytes);
}

/* Returns true if an epoch that holds more than a chunk still fills chunks, where blocks of different sizes are
   neighbours. Frees all blocks again. */
static bool fills_chunks(tslab_epoch e) {
  enum { BLOCKS = 100 };
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) blocks[i] = block_in(e, i % 2 ? 1000 : 500);
  const bool neighbours = blocks[BLOCKS - 1] - blocks[BLOCKS - 2] == 512;
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
  return neighbours;
}

/* The first epoch of a label may stay for good; an epoch that was reset, or follows one that ended, does not. */
static void first_of_a_label(void) {
  const tslab_epoch first = open_epoch("novel", 0), beside = open_epoch("novel", 0);
  CHECK(!fills_chunks(first) && !fills_chunks(beside));
  CHECK_COUNT(tslab_epoch_close(first, NULL), ==, 0);
  const tslab_epoch second = open_epoch("novel", 0);
  CHECK(fills_chunks(second));
  CHECK_COUNT(tslab_epoch_close(second, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(beside, NULL), ==, 0);
  const tslab_epoch other = open_epoch("another", TSLAB_EPOCH_DESTROYABLE);
  CHECK(!fills_chunks(other));
  CHECK_COUNT(tslab_epoch_reset(other, NULL), ==, 0);
  CHECK(fills_chunks(other));
  CHECK_COUNT(tslab_epoch_close(other, NULL), ==, 0);
  const tslab_epoch again = open_epoch("novel", 0); /* in a slot whose epoch had another label meanwhile */
  CHECK(fills_chunks(again));
  CHECK_COUNT(tslab_epoch_close(again, NULL), ==, 0);
}

static void totals_are_exact(void) {
  static struct counted counted;
  const tslab_epoch freed = open_epoch("freed", 0), destroyed = open_epoch("destroyed", TSLAB_EPOCH_DESTROYABLE);
  tslab_stats_global before = stats();
  allocate(&counted, freed);
  check_moved(&before, 4000, counted.bytes);
  CHECK_COUNT(stats().allocations - before.allocations, ==, 4000);
  CHECK_COUNT(stats().frees, ==, before.frees);
  CHECK_COUNT(tslab_epoch_close(freed, NULL), ==, 0); /* ends no block */
  check_moved(&before, 4000, counted.bytes);
  for (int i = 0; i < 4000; i++) tslab_free(counted.blocks[i]);
  check_stale(freed);
  check_moved(&before, 0, 0);
  CHECK_COUNT(stats().frees - before.frees, ==, 4000);

  before = stats();
  for (int round = 0; round < 3; round++) {
    allocate(&counted, destroyed);
    for (int i = 0; i < 4000; i += 3) {
      counted.bytes -= tslab_malloc_usable_size(counted.blocks[i]);
      tslab_free(counted.blocks[i]);
    }
    check_moved(&before, 4000 - 1334, counted.bytes);
    if (round < 2) CHECK_COUNT(tslab_epoch_reset(destroyed, NULL), ==, 0);
    else CHECK_COUNT(tslab_epoch_destroy(destroyed, NULL), ==, 0);
    check_moved(&before, 0, 0);
    CHECK_COUNT(stats().allocations - before.allocations, ==, 4000 * (round + 1));
  }
}

/* Allocates blocks of `size` in `e` and links them as a list. */
static void *fill(tslab_epoch e, size_t size, size_t total) {
  void *list = NULL;
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  CHECK_COUNT(fill_list(&list, size, total), >=, total);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  return list;
}

static void *fill_64(tslab_epoch e, size_t size) { return fill(e, size, 64 * MIB); }

/* Code becomes resident at its first call; the test counts no such page. */
static void run_everything_once(size_t size) {
  const tslab_epoch closed = open_epoch("closed", 0), destroyed = open_epoch("destroyed", TSLAB_EPOCH_DESTROYABLE);
  void *list = fill(closed, size, 3 * MIB);
  free_list(&list);
  list = fill(closed, size, 3 * MIB);
  CHECK_COUNT(tslab_epoch_close(closed, NULL), ==, 0);
  free_list(&list);
  fill(destroyed, size, 3 * MIB);
  CHECK_COUNT(tslab_epoch_destroy(destroyed, NULL), ==, 0);
  CHECK_COUNT(resident_bytes(), >, 0);
}

static void a_drained_epoch_leaves_nothing(size_t size) {
  tslab_epoch_report report;
  const size_t before = resident_bytes();
  const tslab_epoch e = open_epoch("drained", 0);
  void *list = fill_64(e, size);
  CHECK_COUNT(resident_bytes(), >=, before + 63 * MIB);
  free_list(&list);
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  CHECK_COUNT(report.bytes_recycled, <=, MIB);
  CHECK_COUNT(resident_bytes(), <=, before + SLACK);
  check_stale(e);
}

/* The blocks pin their slabs first: the last free of each slab gives it back. */
static void late_frees_leave_nothing(size_t size) {
  const size_t before = resident_bytes();
  const tslab_epoch e = open_epoch("late", 0);
  void *list = fill_64(e, size);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  CHECK_COUNT(resident_bytes(), >=, before + 63 * MIB);
  free_list(&list);
  check_stale(e);
  CHECK_COUNT(resident_bytes(), <=, before + SLACK);
}

static void a_destroyed_epoch_leaves_nothing(size_t size) {
  tslab_epoch_report report;
  const size_t before = resident_bytes();
  const uint64_t returned = stats().returned_bytes;
  const tslab_epoch e = open_epoch("destroyed", TSLAB_EPOCH_DESTROYABLE);
  fill_64(e, size);
  CHECK_COUNT(tslab_epoch_reset(e, &report), ==, 0);
  CHECK_COUNT(report.bytes_recycled, <=, MIB);
  CHECK_COUNT(report.bytes_returned, >=, 62 * MIB);
  CHECK_COUNT(stats().returned_bytes - returned, >=, report.bytes_returned);
  CHECK_COUNT(resident_bytes(), <=, before + SLACK);
  fill_64(e, size);
  CHECK_COUNT(tslab_epoch_destroy(e, &report), ==, 0);
  CHECK_COUNT(report.bytes_recycled, <=, MIB);
  CHECK_COUNT(report.bytes_returned, >=, 62 * MIB);
  CHECK_COUNT(resident_bytes(), <=, before + SLACK);
  check_stale(e);
}

/* The epochs free no block one by one: 78 MiB in 64 arenas, one after the other. */
static void epochs_without_a_single_free(void) {
  const size_t before = resident_bytes();
  for (int round = 0; round < 64; round++) {
    const tslab_epoch e = open_epoch("arena", TSLAB_EPOCH_DESTROYABLE);
    for (int i = 0; i < 5000; i++) block_in(e, 256);
    CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
  }
  CHECK_COUNT(resident_bytes(), <=, before + SLACK);
}

/* Many more epochs than the process keeps ready, one block in each. */
static void ten_thousand_small_ones(void) {
  enum { COUNT = 10000 };
  static tslab_epoch epochs[COUNT];
  const size_t before = resident_bytes();
  for (int i = 0; i < COUNT; i++) block_in(epochs[i] = open_epoch("small", TSLAB_EPOCH_DESTROYABLE), 100);
  /* A page of data, 2 KiB of tables, the epoch itself, and this list of ids. */
  CHECK_COUNT(resident_bytes(), <=, before + (size_t)COUNT * (4096 + 2048 + 512 + 8) + SLACK);
  for (int i = 0; i < COUNT; i++) CHECK_COUNT(tslab_epoch_destroy(epochs[i], NULL), ==, 0);
  /* The records of ended epochs may serve the next ones. */
  CHECK_COUNT(resident_bytes(), <=, before + (size_t)COUNT * (512 + 8) + SLACK);
}

static void reported(void) {
  tslab_epoch_report report;
  const tslab_epoch e = open_epoch("reported", TSLAB_EPOCH_DESTROYABLE);
  fill_64(e, 1000);
  CHECK_COUNT(tslab_epoch_destroy(e, &report), ==, 0);
  CHECK_COUNT(report.bytes_recycled, ==, 0);
  CHECK_COUNT(report.bytes_returned, >=, 64 * MIB);
  CHECK_COUNT(report.rss_before, >=, 64 * MIB);
  CHECK_COUNT(report.rss_after, >, 0);
  CHECK_COUNT(report.rss_before - report.rss_after, >=, 63 * MIB);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    CHECK(strcmp(argv[1], "reported") == 0);
    reported();
    return 0;
  }
  first_of_a_label();
  totals_are_exact();
  const size_t sizes[] = {64, 1000, 20000, 500000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    run_everything_once(sizes[i]);
    a_drained_epoch_leaves_nothing(sizes[i]);
    late_frees_leave_nothing(sizes[i]);
    a_destroyed_epoch_leaves_nothing(sizes[i]);
  }
  epochs_without_a_single_free();
  ten_thousand_small_ones();
  return 0;
}
