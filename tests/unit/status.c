/* status: live blocks, bytes, runs and charges of an epoch that holds every kind of run, against the test's own
 * counts. */
#include "unit.h"

#include "epoch/close.h"
#include "epoch/open.h"
#include "epoch/scope.h"
#include "epoch/status.h"
#include "runtime/thread.h"
#include <pthread.h>
#include <unistd.h>

enum { MOST = 3000 };

static uint64_t id;
static struct block {
  void *start;
  size_t size;
} blocks[MOST];
static unsigned count;
static uint64_t bytes, taken;

static tslab_epoch_status status(void) {
  tslab_epoch_status s;
  epoch_lock(epoch_slot(id));
  status_of(epoch_slot(id), &s);
  epoch_unlock(epoch_slot(id));
  return s;
}

static void take(size_t size) {
  void *const start = tslab_malloc(size);
  CHECK(start != NULL && count < MOST);
  blocks[count++] = (struct block){start, tslab_malloc_usable_size(start)};
  bytes += blocks[count - 1].size;
  taken++;
}

static void give(unsigned i) {
  bytes -= blocks[i].size;
  tslab_free(blocks[i].start);
  blocks[i] = blocks[--count];
}

static void check_live(unsigned inside) {
  const tslab_epoch_status s = status();
  CHECK_COUNT(s.live_blocks, ==, count);
  CHECK_COUNT(s.live_bytes, ==, bytes);
  CHECK_COUNT(s.allocations, ==, taken); /* also mallocs that a list served since its last visit of a slow path */
  CHECK_COUNT(s.threads_inside, ==, inside);
  CHECK(s.slabs_pinned <= s.slabs && (s.slabs_pinned > 0) == (count > 0));
  CHECK(s.committed_bytes % GRANULE == 0 && s.committed_bytes >= bytes && s.committed_bytes >= s.slabs * GRANULE);
  CHECK_COUNT(s.charged_bytes, ==, s.committed_bytes);
}

static void check_head(void) {
  int error;
  const uint64_t parent = epoch_open(&(tslab_epoch_options){.label = "parent"}, &error);
  id = epoch_open(&(tslab_epoch_options){.label = "status",
                                         .budget_bytes = 64 * MiB,
                                         .flags = TSLAB_EPOCH_DESTROYABLE,
                                         .parent = parent},
                  &error);
  CHECK(parent != 0 && id != 0);
  const tslab_epoch_status s = status();
  CHECK(s.epoch == id && s.parent == parent && s.era == 0 && s.state == TSLAB_EPOCH_OPEN);
  CHECK(strcmp(s.label, "status") == 0);
  CHECK(s.flags == TSLAB_EPOCH_DESTROYABLE && s.budget_bytes == 64 * MiB);
  CHECK_COUNT(s.live_blocks + s.slabs + s.committed_bytes + s.charged_bytes + s.refused + s.diverted, ==, 0);
  CHECK_COUNT(s.closed_ns, ==, 0);
}

/* The close is as long ago as a sleep took, or longer, and not longer ago than the epoch was opened. */
static void check_closed(void) {
  const uint64_t before = status().closed_ns, slept_ns = 80 * 1000 * 1000;
  CHECK(before != 0);
  usleep(slept_ns / 1000);
  const tslab_epoch_status s = status();
  CHECK(s.closed_ns >= slept_ns / 2 && s.closed_ns <= s.age_ns); /* by coarse units */
}

static void *free_there(void *block) {
  tslab_free(block);
  return NULL;
}

/* A slab whose blocks are all free, but on a list, is held and pins nothing. */
static void check_listed(void) {
  int error;
  id = epoch_open(&(tslab_epoch_options){.label = "listed"}, &error);
  CHECK(id != 0 && scope_enter(current_thread, id) == 0);
  take(20000); /* above what chunks take */
  give(0);
  CHECK_COUNT(status().slabs, ==, 1);
  check_live(1);
  CHECK(scope_leave(current_thread, id) == 0);
  /* A free on another thread ends the heap's last slab, and the list was not visited since. */
  pthread_t thread;
  blocks[count++] = (struct block){tslab_epoch_malloc(id, 24000), class_size(class_of(24000))};
  bytes += blocks[0].size;
  taken++;
  CHECK(pthread_create(&thread, NULL, free_there, blocks[0].start) == 0 && pthread_join(thread, NULL) == 0);
  bytes -= blocks[--count].size;
  check_live(0);
  CHECK(epoch_close(id, NULL) == 0);
  taken = 0;
}

static void check_survivor(void *start, size_t size, void *visited) {
  unsigned i = 0;
  while (i < count && blocks[i].start != start) i++;
  CHECK(i < count && blocks[i].size == size);
  ++*(unsigned *)visited;
}

int main(void) {
  uint64_t seed = 1;
  unsigned visited = 0;
  CHECK(thread_own_heap() != NULL);
  check_listed();
  check_head();
  CHECK(scope_enter(current_thread, id) == 0);
  for (int i = 0; i < 500; i++) take(1 + check_random(&seed) % 900); /* chunks */
  check_live(1);
  while (count > 100) give((unsigned)(check_random(&seed) % count)); /* so that slabs come next */
  for (int i = 0; i < 1000; i++) take(1 + check_random(&seed) % 900);
  for (int i = 0; i < 10; i++) take(100000 * (size_t)(i + 1)); /* large blocks */
  for (int i = 0; i < 400; i++) give((unsigned)(check_random(&seed) % count));
  CHECK(epoch_slot(id)->heaps->slab_granules > 0);
  check_live(1); /* blocks on lists are not live, though they are in use to their slabs */
  CHECK(scope_leave(current_thread, id) == 0);
  check_live(0);
  CHECK(epoch_close(id, NULL) == 0 && status().state == TSLAB_EPOCH_CLOSING);
  check_live(0);
  check_closed();

  epoch_lock(epoch_slot(id));
  status_each_survivor(epoch_slot(id), check_survivor, &visited);
  epoch_unlock(epoch_slot(id));
  CHECK_COUNT(visited, ==, count);
  while (count > 1) give(count - 1);
  check_live(0);
  give(0);
  CHECK_COUNT(epoch_error(epoch_slot(id), id), ==, ESTALE);
  return 0;
}
