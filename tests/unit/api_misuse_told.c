/* A thread of the program reads standard error, a pipe that is full most of the time, and looks at the whole heap
 * before it reads more. So a message that a thread writes while it holds a lock would end in a deadlock. The test runs
 * with TSLAB_ON_MISUSE=report, makes mistakes that the library notices under its locks, and does not hang. The
 * reader itself notices none, because it would wait for itself to read. */
#include "../epochs.h"

#include <fcntl.h>

enum { MANY = 3000, ROUNDS = 60, BLOCKS = 200, SMALL = 100, LARGE = 300000, PATIENCE_S = 120 };

static int visit(const tslab_epoch_status *status, void *unused) { return (void)status, (void)unused, 0; }

static unsigned long lines;

static void *read_and_look(void *pipe_end) {
  char some[512];
  for (ssize_t got; (got = read(*(int *)pipe_end, some, sizeof some)) > 0;) {
    tslab_stats_global all;
    for (ssize_t i = 0; i < got; i++) lines += some[i] == '\n';
    CHECK_COUNT(tslab_epoch_each(visit, NULL), ==, 0);
    CHECK_COUNT(tslab_stats(&all, sizeof all), ==, 0);
    void *block = tslab_malloc(LARGE);
    CHECK(block != NULL);
    tslab_free(block);
  }
  return NULL;
}

static int filler = -1; /* writes to the pipe, and does not wait */

static void fill_pipe(void) {
  while (write(filler, "....", 4) == 4) {}
}

static void take(void *blocks[], tslab_epoch e) {
  for (int i = 0; i < BLOCKS; i++) blocks[i] = e ? tslab_epoch_malloc(e, SMALL) : tslab_malloc(SMALL);
}

static void free_twice(void *blocks[]) {
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
  for (int i = 0; i < BLOCKS; i += 3) tslab_free(blocks[i]);
}

static void *free_twice_and_end(void *blocks) {
  tslab_free(tslab_malloc(SMALL)); /* the thread gets a heap, and collects what it frees for others */
  free_twice(blocks);
  return NULL;
}

static void in_a_batch(void) {
  void *blocks[BLOCKS];
  pthread_t thread;
  take(blocks, 0);
  CHECK(pthread_create(&thread, NULL, free_twice_and_end, blocks) == 0 && pthread_join(thread, NULL) == 0);
}

static void *write_to_freed(void *unused) {
  void *blocks[BLOCKS];
  take(blocks, 0);
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
  for (int i = 0; i < BLOCKS; i += 7) memset(blocks[i], 1, SMALL); /* when the thread ends, its lists are checked */
  return unused;
}

static void in_a_list(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, write_to_freed, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

/* Once the epoch has freed many blocks, it takes new ones from slabs. Its end flushes the lists of the thread. */
static void in_an_epoch(int (*end)(tslab_epoch, tslab_epoch_report *)) {
  static void *blocks[MANY];
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < MANY; i++) blocks[i] = tslab_malloc(SMALL);
    for (int i = 0; i < MANY; i++) tslab_free(blocks[i]);
  }
  for (int i = 0; i < MANY; i++) memset(blocks[i], 1, SMALL);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  fill_pipe();
  CHECK_COUNT(end(e, NULL), ==, 0);
  tslab_epoch_close(e, NULL);
}

int main(void) {
  pthread_t thread;
  int pipe_ends[2];
  char name[64];
  const int kept = dup(2);
  CHECK(kept >= 0 && pipe(pipe_ends) == 0);
  fcntl(pipe_ends[1], F_SETPIPE_SZ, 4096);
  snprintf(name, sizeof name, "/proc/self/fd/%d", pipe_ends[1]);
  if ((filler = open(name, O_WRONLY | O_NONBLOCK)) < 0) return 77; /* without /proc */
  CHECK(pthread_create(&thread, NULL, read_and_look, &pipe_ends[0]) == 0);
  alarm(PATIENCE_S);
  dup2(pipe_ends[1], 2);
  for (int i = 0; i < ROUNDS; i++) {
    in_a_batch();
    in_a_list();
    in_an_epoch(i % 2 ? tslab_epoch_close : tslab_epoch_reset);
  }
  dup2(kept, 2);
  close(kept), close(pipe_ends[1]), close(filler);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_COUNT(lines, >, ROUNDS);
  close(pipe_ends[0]);
  return 0;
}
