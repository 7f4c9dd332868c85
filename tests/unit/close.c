/* close: the events that take an epoch from open to closing to ended, and those that delay it. */
#include "unit.h"

#include "epoch/close.h"
#include "epoch/destroy.h"
#include "epoch/finish.h"
#include "epoch/open.h"
#include "epoch/scope.h"
#include "heap/bump.h"
#include "runtime/thread.h"

static uint64_t open_one(uint32_t flags, uint64_t parent) {
  int error;
  const uint64_t id = epoch_open(&(tslab_epoch_options){.label = "ending", .flags = flags, .parent = parent}, &error);
  CHECK(id != 0);
  return id;
}

static struct epoch *slot(uint64_t id) {
  struct epoch *const e = epoch_slot(id);
  CHECK(e != NULL);
  return e;
}

/* A block of 100 bytes by way of the epoch's heap. */
static void *block_in(uint64_t id) {
  CHECK(scope_enter(current_thread, id) == 0);
  void *const block = bump_refill(current_heap, 100);
  CHECK(block != NULL && scope_leave(current_thread, id) == 0);
  return block;
}

static void free_late(uint64_t id, void *block) {
  CHECK(bump_free(pages_run_of(block), block));
  epoch_after_free(epoch_index(id));
}

static bool is_in_state(uint64_t id, enum epoch_state state) { return epoch_state(slot(id)) == state; }

/* The last block keeps it, and the free of that one ends it. */
static void blocks(void) {
  const uint64_t id = open_one(0, 0);
  void *const one = block_in(id), *const other = block_in(id);
  tslab_epoch_report report;
  CHECK(epoch_close(id, &report) == 0 && report.epoch == id);
  CHECK_COUNT(report.live_blocks, ==, 2);
  CHECK_COUNT(report.slabs_pinned, ==, 1);
  CHECK(is_in_state(id, EPOCH_CLOSING) && epoch_close(id, &report) == ESHUTDOWN && report.live_blocks == 2);
  CHECK(epoch_destroy(id, NULL) == ESHUTDOWN && epoch_reset(id, NULL) == ESHUTDOWN);
  free_late(id, one);
  CHECK(is_in_state(id, EPOCH_CLOSING) && slot(id)->arena.own == GRANULE);
  free_late(id, other);
  CHECK(is_in_state(id, EPOCH_ENDED) && slot(id)->arena.own == 0 && slot(id)->heaps == NULL);
  CHECK(epoch_close(id, NULL) == ESTALE && epoch_close_step(id, 1, NULL) == ESTALE);
}

/* A thread that is inside keeps the epoch as well. Its leave ends the epoch, or closes it. */
static void threads(void) {
  uint64_t id = open_one(0, 0);
  tslab_epoch_report report;
  CHECK(scope_enter(current_thread, id) == 0);
  CHECK(epoch_close(id, &report) == 0 && report.threads_inside == 1 && is_in_state(id, EPOCH_CLOSING));
  CHECK(bump_refill(current_heap, 100) == NULL);
  CHECK(scope_leave(current_thread, id) == 0 && is_in_state(id, EPOCH_ENDED));

  id = open_one(TSLAB_EPOCH_AUTO_CLOSE, 0);
  CHECK(scope_enter(current_thread, id) == 0 && scope_enter(current_thread, id) == 0);
  CHECK(scope_leave(current_thread, id) == 0 && epoch_error(slot(id), id) == 0);
  CHECK(scope_leave(current_thread, id) == 0 && epoch_error(slot(id), id) == ESTALE);
}

/* Children go first; a child that keeps a block keeps its parent. */
static void children(void) {
  const uint64_t parent = open_one(0, 0), child = open_one(0, parent), grandchild = open_one(0, child);
  void *const block = block_in(grandchild);
  CHECK(epoch_close(parent, NULL) == 0);
  CHECK(is_in_state(parent, EPOCH_CLOSING) && is_in_state(child, EPOCH_CLOSING));
  CHECK(is_in_state(grandchild, EPOCH_CLOSING));
  free_late(grandchild, block);
  CHECK(is_in_state(parent, EPOCH_ENDED) && is_in_state(child, EPOCH_ENDED) && is_in_state(grandchild, EPOCH_ENDED));
}

/* Each call does a piece of work, so any deadline is long enough. */
static void steps(void) {
  const uint64_t id = open_one(0, 0);
  unsigned steps = 1;
  void *kept = NULL;
  CHECK(scope_enter(current_thread, id) == 0);
  for (int i = 0; i < 50; i++) {
    void *const large = tslab_malloc(300000); /* dirty memory that the epoch gives to common use */
    CHECK(large != NULL && pages_run_of(large)->epoch == epoch_index(id));
    memset(large, 1, 300000);
    tslab_free(large);
    if (i == 0) CHECK((kept = tslab_malloc(10)) != NULL);
  }
  CHECK(scope_leave(current_thread, id) == 0);
  tslab_epoch_report report;
  int error;
  while ((error = epoch_close_step(id, 0, &report)) == EAGAIN) CHECK(steps++ < 100000);
  CHECK(error == 0 && report.live_blocks == 1 && slot(id)->arena.spilled == 0);
  CHECK(epoch_close_step(id, 0, NULL) == ESHUTDOWN);
  tslab_free(kept);
  CHECK(is_in_state(id, EPOCH_ENDED));
}

static void destroying(void) {
  const uint64_t plain = open_one(0, 0), id = open_one(TSLAB_EPOCH_DESTROYABLE, 0);
  CHECK(epoch_destroy(plain, NULL) == EPERM && epoch_reset(plain, NULL) == EPERM);
  CHECK(epoch_close(plain, NULL) == 0);
  block_in(id), block_in(id);
  tslab_epoch_report report;
  CHECK(epoch_reset(id, &report) == 0 && report.live_blocks == 2);
  CHECK(epoch_error(slot(id), id) == 0 && slot(id)->era == 1);
  block_in(id);
  CHECK(scope_enter(current_thread, id) == 0 && epoch_destroy(id, &report) == EBUSY);
  CHECK(epoch_reset(id, &report) == 0 && report.live_blocks == 1 && report.threads_inside == 1);
  CHECK(current_heap == slot(id)->heaps && scope_leave(current_thread, id) == 0);
  const uint64_t child = open_one(0, id);
  CHECK(epoch_destroy(id, NULL) == EPERM && epoch_close(child, NULL) == 0);
  block_in(id);
  CHECK(epoch_destroy(id, &report) == 0 && report.live_blocks == 1);
  CHECK(epoch_error(slot(id), id) == ESTALE);
}

/* Blocks in chunks, slabs of two sizes and large ones; a part of them is freed. */
static void fill(uint64_t id) {
  CHECK(scope_enter(current_thread, id) == 0);
  for (int i = 0; i < 2000; i++) {
    void *const block = tslab_malloc(i % 3 == 0 ? 3000 : i % 3 == 1 ? 20000 : 70000);
    CHECK(block != NULL);
    if (i % 4 == 1) tslab_free(block);
  }
  CHECK(scope_leave(current_thread, id) == 0);
}

/* The longest hold of a lock that other threads may want does not grow with the memory that an epoch holds, or with the
   epochs below it. */
static void bounded(void) {
  tslab_epoch_report report;
  atomic_store(&lock_steps_most, 0);
  for (int how = 0; how < 4; how++) {
    const uint64_t id = open_one(TSLAB_EPOCH_DESTROYABLE, 0);
    if (how == 1) CHECK(epoch_reset(id, NULL) == 0); /* so that the epoch fills chunks */
    for (int i = 0; i < 300; i++) open_one(TSLAB_EPOCH_DESTROYABLE, id);
    fill(id);
    CHECK(slot(id)->arena.own > 4 * ARENA_STEPS * GRANULE);
    CHECK(epoch_reset(id, how == 2 ? &report : NULL) == 0 && slot(id)->arena.own == 0);
    fill(id);
    int error = how == 3 ? EAGAIN : how == 2 ? epoch_close(id, &report) : epoch_destroy(id, how ? &report : NULL);
    while (error == EAGAIN) error = epoch_close_step(id, 0, &report);
    CHECK_COUNT(error, ==, 0);
    CHECK(how < 2 || report.live_blocks == 1500);
  }
  CHECK_COUNT(lock_steps_most, >, 4);
  CHECK_COUNT(lock_steps_most, <=, ARENA_STEPS_MOST);
}

int main(void) {
  CHECK(thread_own_heap() != NULL);
  blocks();
  threads();
  children();
  steps();
  destroying();
  bounded();
  return 0;
}
