/* fork_alone: a process with one thread forks, and its children have the whole heap, if they use it first or make a
 * thread that does. Then a thread that pthread_create did not make allocates, and the children still have the whole
 * heap.
 *  fork_alone */
#include "../check.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <threads.h>

enum { BLOCKS = 500, ALONE = 20 / TEST_SCALE + 1, BESIDE = 120 / TEST_SCALE + 1 };

static unsigned char *blocks[BLOCKS];
static atomic_bool is_over, is_busy;

static size_t size_of(unsigned i) { return i % 50 == 0 ? 100000 + i : 16 + i * 7; }

static void fill(unsigned char value) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = tslab_malloc(size_of(i))) != NULL);
    memset(blocks[i], value, size_of(i));
  }
}

static void release(unsigned char value) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    CHECK(blocks[i][0] == value && blocks[i][size_of(i) - 1] == value);
    tslab_free(blocks[i]);
  }
}

static int fill_and_release(void *unused) {
  (void)unused;
  unsigned char *mine[BLOCKS];
  for (unsigned i = 0; i < BLOCKS; i++) CHECK((mine[i] = tslab_malloc(size_of(i))) != NULL);
  for (unsigned i = 0; i < BLOCKS; i++) tslab_free(mine[i]);
  return 0;
}

/* Inside locks, most of the time. */
static int keep_busy(void *unused) {
  (void)unused;
  while (!is_over) {
    tslab_free(tslab_malloc(100000));
    is_busy = true;
  }
  return 0;
}

static void use_in_thread(void) {
  thrd_t thread;
  CHECK(thrd_create(&thread, fill_and_release, NULL) == thrd_success && thrd_join(thread, NULL) == thrd_success);
}

/* Its parent's blocks are as they were and it frees them; nothing of the heap is frozen; threads and epochs work. */
static void live_as_child(bool thread_first) {
  tslab_stats_global now;
  if (thread_first) use_in_thread();
  release(1);
  fill(2);
  CHECK(tslab_stats(&now, sizeof now) == 0);
  CHECK_COUNT(now.frozen_bytes, ==, 0);
  const tslab_epoch epoch = tslab_epoch_open("child");
  CHECK(epoch != 0 && tslab_epoch_malloc(epoch, 100) != NULL);
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
  use_in_thread();
  release(2);
}

static void fork_once(bool thread_first) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    live_as_child(thread_first);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
  thrd_t thread;
  fill(1);
  for (unsigned i = 0; i < ALONE; i++) fork_once(i % 2);
  CHECK(thrd_create(&thread, keep_busy, NULL) == thrd_success);
  while (!is_busy) thrd_yield();
  for (unsigned i = 0; i < BESIDE; i++) fork_once(i % 2);
  is_over = true;
  CHECK(thrd_join(thread, NULL) == thrd_success);
  release(1);
  return 0;
}
