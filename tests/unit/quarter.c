/* quarter: a granule is handed out in quarters, and is one run again when all are returned. Free quarters are not
   resident; one system call purges neighbours. A thread that has many epochs open fills quarters, four for each epoch,
   before whole granules, and keeps free quarters within its claim. Pointers into a quarter lead to the quarter's
   epoch. */
#include "unit.h"

#include "base/options.h"
#include "epoch/epoch.h"
#include "heap/bump.h"
#include "runtime/scavenger.h"
#include "runtime/thread.h"
#include "slab/quarter.h"

static struct run *first_of_new(void) {
  struct run *chunk = chunk_new(1, NULL);
  CHECK(chunk != NULL);
  chunk_clear_starts(chunk_starts(chunk), 0);
  memset(run_start(chunk), 1, GRANULE);
  struct run *first = quarter_split(chunk);
  CHECK(first != NULL && chunk->kind == RUN_SPLIT && chunk->epoch == SPLIT_EPOCH);
  return first;
}

static size_t give_back(struct run *one, struct run *other) {
  struct returning r = {0};
  returning_keep(&r, one);
  if (other) returning_keep(&r, other);
  returning_flush(&r);
  quarters_check();
  return r.returned;
}

static void lending(void) {
  struct run *const first = first_of_new();
  char *const start = chunk_start(first);
  CHECK(pages_pagemap()[granule_of(start)] == 0);
  for (unsigned i = 0; i < QUARTERS; i++) {
    struct run *const quarter = first + i;
    CHECK(quarter->kind == RUN_RESERVED && run_is_quarter(quarter) && quarter_number(quarter) == i);
    CHECK_COUNT(quarter_granule(quarter), ==, granule_of(start));
    CHECK_COUNT(run_bytes(quarter), ==, QUARTER);
    CHECK(chunk_start(quarter) == start + i * QUARTER);
    CHECK(pages_run_of(start + i * QUARTER) == quarter && pages_run_of(start + (i + 1) * QUARTER - 1) == quarter);
    CHECK(!pages_is_frozen(quarter));
  }
  CHECK(quarter_take() == NULL);
  const size_t calls = pages_totals().purge_calls;
  CHECK_COUNT(give_back(first + 1, first + 2), ==, 2 * QUARTER);
  CHECK_COUNT(pages_totals().purge_calls - calls, ==, 1);
  for (size_t i = QUARTER; i < 3 * QUARTER; i++) CHECK_COUNT(start[i], ==, 0);
  CHECK(start[0] == 1 && start[GRANULE - 1] == 1);
  CHECK(quarter_take() == first + 1);
  CHECK_COUNT(give_back(first, first + 3), ==, 2 * QUARTER);
  CHECK(quarter_take() == first);
  CHECK_COUNT(give_back(first, NULL), ==, QUARTER);
  CHECK(pages_run_of(start) != pages.runs + granule_of(start)); /* one quarter is still in use */
  CHECK_COUNT(give_back(first + 1, NULL), ==, QUARTER);
  CHECK(pages_run_of(start)->kind == RUN_FREE && pages.runs[granule_of(start)].was == CHUNK_WAS);
  CHECK(quarter_take() == NULL);
  pages_check();
}

/* ---- of epochs --------------------------------------------------------------------------------------------------- */

enum { MANY = 40, BLOCK = 1000, FILLS = QUARTER / 1008 }; /* the number of blocks in a quarter */

static uint64_t open_one(void) {
  const tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "many", .flags = TSLAB_EPOCH_DESTROYABLE};
  const uint64_t id = tslab_epoch_open_with(&wanted);
  CHECK(id != 0);
  return id;
}

static char *take(uint64_t id, size_t size) {
  CHECK(tslab_epoch_enter(id) == 0);
  char *const block = tslab_malloc(size);
  CHECK(block != NULL && tslab_epoch_of(block) == id && tslab_malloc_usable_size(block) >= size);
  memset(block, 1, size);
  CHECK(tslab_epoch_leave(id) == 0);
  return block;
}

static size_t own_bytes(uint64_t id) { return atomic_load(&epoch_slot(id)->arena.own); }

static void open_many(uint64_t ids[MANY]) {
  for (int i = 0; i < MANY; i++) {
    ids[i] = open_one();
    take(ids[i], BLOCK);
  }
  CHECK_COUNT(own_bytes(ids[0]), ==, GRANULE);
  CHECK_COUNT(own_bytes(ids[MANY - 1]), ==, QUARTER);
}

static void end_all(const uint64_t ids[MANY]) {
  for (int i = 0; i < MANY; i++) CHECK(tslab_epoch_destroy(ids[i], NULL) == 0);
  CHECK_COUNT(reserve_bytes(), <=, MiB);
  scavenger_purge();
  CHECK_COUNT(reserve_bytes(), ==, 0);
  CHECK(quarter_take() == NULL); /* all granules are whole again */
  quarters_check();
  pages_check();
}

/* Four quarters, then granules; a block that is large for a quarter gets a granule. */
static void filling(void) {
  uint64_t ids[MANY];
  open_many(ids);
  const uint64_t last = ids[MANY - 1];
  for (int i = 1; i < 4 * FILLS; i++) take(last, BLOCK);
  CHECK_COUNT(own_bytes(last), ==, 4 * QUARTER);
  take(last, BLOCK);
  CHECK_COUNT(own_bytes(last), ==, 4 * QUARTER + GRANULE);
  take(ids[MANY - 2], BUMP_QUARTER_MOST);
  CHECK_COUNT(own_bytes(ids[MANY - 2]), ==, QUARTER);
  take(ids[MANY - 2], 3 * BUMP_QUARTER_MOST);
  CHECK_COUNT(own_bytes(ids[MANY - 2]), ==, QUARTER + GRANULE);
  for (int i = 0; i < MANY; i++) epoch_check(epoch_slot(ids[i]));
  end_all(ids);
}

/* The last free of a filled quarter, on any thread, returns it, and it serves the next epoch. */
static void freeing(void) {
  uint64_t ids[MANY];
  char *blocks[FILLS];
  open_many(ids);
  const uint64_t last = ids[MANY - 1];
  CHECK(tslab_epoch_reset(last, NULL) == 0);
  for (int i = 0; i < FILLS; i++) blocks[i] = take(last, BLOCK);
  take(last, BLOCK);
  CHECK_COUNT(own_bytes(last), ==, 2 * QUARTER);
  struct run *const filled = pages_run_of(blocks[0]);
  CHECK(filled != pages_run_of(take(last, BLOCK)) && run_is_quarter(filled));
  tslab_epoch_status status;
  CHECK(tslab_epoch_info(last, &status) == 0);
  CHECK_COUNT(status.live_blocks, ==, FILLS + 2);
  CHECK_COUNT(status.committed_bytes, ==, 2 * QUARTER);
  for (int i = 0; i < FILLS; i++) tslab_free(blocks[i]);
  CHECK_COUNT(own_bytes(last), ==, QUARTER);
  CHECK(filled->kind == RUN_RESERVED);
  CHECK(pages_run_of(take(open_one(), BLOCK)) == filled);
  CHECK(tslab_epoch_destroy(tslab_epoch_of(chunk_start(filled)), NULL) == 0);
  end_all(ids);
}

/* Without a reserve the thread keeps nothing. */
static void without_reserve(void) {
  uint64_t ids[MANY];
  options.reserve_bytes = 0;
  open_many(ids);
  const size_t returned = pages_totals().returned;
  for (int i = 0; i < MANY; i++) CHECK(tslab_epoch_destroy(ids[i], NULL) == 0);
  CHECK_COUNT(pages_totals().returned - returned, >=, MANY * QUARTER);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  options.reserve_bytes = MiB;
  scavenger_purge();
  CHECK(quarter_take() == NULL);
}

static void in_trap_mode(void) {
  const size_t before = options.on_destroy;
  options.on_destroy = DESTROY_TRAPS;
  CHECK(!quarters_are_allowed());
  options.on_destroy = before;
}

int main(void) {
  options.scavenger = 0; /* it would age the memory that the thread keeps */
  options.reserve_bytes = MiB;
  CHECK(thread_own_heap() != NULL);
  in_trap_mode();
  if (!quarters_are_allowed()) return 0;
  lending();
  filling();
  freeing();
  without_reserve();
  return 0;
}
