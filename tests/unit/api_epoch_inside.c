/* Epochs end while threads are inside, or have blocks of the epoch in their lists. */
#include "../epochs.h"

/* The calling thread is inside. From its next slow path on, its mallocs go to epoch 0, and the totals count them. */
static void malloc_goes_to_epoch_0(void) {
  enum { MOST = 100000 };
  static void *blocks[MOST];
  tslab_epoch_report report;
  const tslab_epoch e = open_epoch("closed inside", 0);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  void *pin = block_here(24);
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  CHECK_COUNT(report.threads_inside, ==, 1);
  CHECK_COUNT(report.live_blocks, >=, 1);
  int count = 0;
  do {
    CHECK_COUNT(count, <, MOST);
    blocks[count] = block_here(24);
  } while (tslab_epoch_of(blocks[count++]) == e);
  CHECK_COUNT(tslab_epoch_of(blocks[count - 1]), ==, 0);
  for (int i = 0; i < 5; i++) {
    void *large = block_here(100000);
    CHECK_COUNT(tslab_epoch_of(large), ==, 0);
    tslab_free(large);
  }
  CHECK_COUNT(status_of(e).diverted, >=, 1);
  CHECK_COUNT(status_of(e).threads_inside, ==, 1);
  while (count > 0) tslab_free(blocks[--count]);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  const tslab_epoch_status status = status_of(e);
  CHECK_COUNT(status.live_blocks, ==, 1); /* exact again */
  CHECK_COUNT(status.slabs, ==, 1);
  CHECK_COUNT(status.threads_inside, ==, 0);
  tslab_free(pin);
  check_stale(e);
}

static void allocate_and_free(void) {
  static _Thread_local void *blocks[500];
  for (int i = 0; i < 500; i++) blocks[i] = block_here((size_t)i * 3);
  for (int i = 0; i < 500; i++) tslab_free(blocks[i]);
}

/* Nothing is live, but two threads are inside with blocks of the epoch in their lists: the last one to leave completes
   it. */
static void the_last_to_leave_completes(void) {
  tslab_epoch_report report;
  struct guest guests[2];
  const tslab_epoch e = open_epoch("two guests", 0);
  for (int i = 0; i < 2; i++) guest_start(&guests[i], e, allocate_and_free);
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  CHECK_COUNT(report.threads_inside, ==, 2);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_CLOSING);
  check_refused(e, ESHUTDOWN);
  guest_end(&guests[0]);
  CHECK_COUNT(status_of(e).threads_inside, ==, 1);
  guest_end(&guests[1]);
  check_stale(e);
}

static void *visits(void *argument) {
  const tslab_epoch e = *(const tslab_epoch *)argument;
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  allocate_and_free();
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  return NULL;
}

struct resting {
  tslab_epoch epoch;
  pthread_barrier_t barrier;
};

static void *visits_and_rests(void *argument) {
  struct resting *const resting = argument;
  visits(&resting->epoch);
  pthread_barrier_wait(&resting->barrier);
  pthread_barrier_wait(&resting->barrier);
  /* Blocks that this thread allocates now belong to its new epoch, whatever its lists held. */
  const tslab_epoch next = open_epoch("next", 0);
  CHECK_COUNT(tslab_epoch_enter(next), ==, 0);
  for (size_t size = 0; size < 1500; size++) {
    void *block = block_here(size);
    CHECK_COUNT(tslab_epoch_of(block), ==, next);
    tslab_free(block);
  }
  CHECK_COUNT(tslab_epoch_leave(next), ==, 0);
  CHECK_COUNT(tslab_epoch_close(next, NULL), ==, 0);
  check_stale(next);
  return NULL;
}

/* After a close no list of any thread holds blocks of the epoch: no list of a thread that left and lives on, nor of one
   that ended. */
static void no_list_keeps_it(void) {
  struct resting resting = {.epoch = open_epoch("in lists", 0)};
  const tslab_epoch e = resting.epoch;
  pthread_t thread;
  CHECK(pthread_barrier_init(&resting.barrier, NULL, 2) == 0);
  CHECK(pthread_create(&thread, NULL, visits_and_rests, &resting) == 0);
  pthread_barrier_wait(&resting.barrier);
  elsewhere(visits, &resting.epoch);
  visits(&resting.epoch);
  CHECK_COUNT(status_of(e).live_blocks, ==, 0);
  tslab_epoch_report report;
  CHECK_COUNT(tslab_epoch_close(e, &report), ==, 0);
  CHECK_COUNT(report.live_blocks, ==, 0);
  check_stale(e);
  pthread_barrier_wait(&resting.barrier);
  CHECK(pthread_join(thread, NULL) == 0);
}

static void *dies_inside(void *argument) {
  CHECK_COUNT(tslab_epoch_enter(*(tslab_epoch *)argument), ==, 0);
  allocate_and_free();
  return block_here(100); /* the block is the caller's now */
}

static void a_thread_that_died_inside(void) {
  tslab_epoch e = open_epoch("died inside", TSLAB_EPOCH_DESTROYABLE);
  pthread_t thread;
  void *block;
  CHECK(pthread_create(&thread, NULL, dies_inside, &e) == 0);
  CHECK(pthread_join(thread, &block) == 0);
  CHECK_COUNT(status_of(e).threads_inside, ==, 0);
  CHECK_COUNT(status_of(e).live_blocks, ==, 1);
  CHECK_COUNT(tslab_epoch_of(block), ==, e);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_CLOSING);
  tslab_free(block);
  check_stale(e);
}

/* enter(0) and nested scopes inside one that closes still do what they say. */
static void other_scopes_go_on(void) {
  const tslab_epoch e = open_epoch("outer", 0), inner = open_epoch("inner", 0);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(inner), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  void *block = block_here(100);
  CHECK_COUNT(tslab_epoch_of(block), ==, inner);
  tslab_free(block);
  CHECK_COUNT(tslab_epoch_leave(inner), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(0), ==, 0);
  block = block_here(100);
  CHECK_COUNT(tslab_epoch_of(block), ==, 0);
  tslab_free(block);
  CHECK_COUNT(tslab_epoch_leave(0), ==, 0);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  check_stale(e);
  CHECK_COUNT(tslab_epoch_close(inner, NULL), ==, 0);
  check_stale(inner);
}

int main(void) {
  malloc_goes_to_epoch_0();
  the_last_to_leave_completes();
  no_list_keeps_it();
  a_thread_that_died_inside();
  other_scopes_go_on();
  return 0;
}
