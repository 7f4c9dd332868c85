/* A long end delays only calls on its own epoch: while one thread ends an epoch, calls on every other epoch return,
 * also on those that share its lock. The test runs with TSLAB_ON_DESTROY=check, which makes an end write to standard
 * error. A pipe with room for only the first line stops the end in the middle. */
#include "../epochs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>

enum { EPOCHS = 130, LINE_ROOM = 128, SIZE = 100000 };

static tslab_epoch epochs[EPOCHS], big;
static tslab_epoch_report report;

static void *destroy_big(void *nothing) {
  (void)nothing;
  CHECK_COUNT(tslab_epoch_destroy(big, &report), ==, 0);
  return NULL;
}

static int waiting_in(int pipe_end) {
  int bytes = 0;
  CHECK(ioctl(pipe_end, FIONREAD, &bytes) == 0);
  return bytes;
}

/* A pipe with room for one line of an end, but not for two. */
static void narrow_pipe(int ends[2]) {
  static char filler[1 << 20];
  CHECK(pipe(ends) == 0);
  const int size = fcntl(ends[1], F_SETPIPE_SZ, 4096);
  CHECK(size >= 4096 && size <= (int)sizeof filler);
  CHECK(write(ends[1], filler, (size_t)size - LINE_ROOM) == size - LINE_ROOM);
}

/* Each call that a request makes. */
static void use(tslab_epoch e) {
  const tslab_epoch child = open_options((tslab_epoch_options){.label = "child", .parent = e});
  CHECK(child != 0);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  void *const block = block_here(100);
  tslab_free(block_here(SIZE));
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(status_of(e).live_blocks, ==, 1);
  tslab_free(block_in(child, 100));
  tslab_free(block);
  CHECK_COUNT(tslab_epoch_close(child, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
}

int main(void) {
  int ends[2];
  for (int i = 0; i < EPOCHS; i++) epochs[i] = open_epoch("beside", TSLAB_EPOCH_DESTROYABLE);
  big = epochs[0];
  for (int i = 0; i < 3; i++) block_in(big, SIZE);
  narrow_pipe(ends);
  const int kept = dup(2), before = waiting_in(ends[0]);
  CHECK(kept >= 0 && dup2(ends[1], 2) == 2);
  pthread_t thread;
  alarm(20); /* a call that waits for the end waits for ever */
  CHECK(pthread_create(&thread, NULL, destroy_big, NULL) == 0);
  while (waiting_in(ends[0]) == before) usleep(100);

  for (int i = 1; i < EPOCHS; i++) use(epochs[i]);
  CHECK(open_options((tslab_epoch_options){.label = "late", .parent = big}) == 0);
  CHECK_COUNT(errno, ==, ESHUTDOWN);
  alarm(0);

  char bytes[4096];
  CHECK(read(ends[0], bytes, sizeof bytes) > 0 && read(ends[0], bytes, 1) == 1);
  CHECK(pthread_join(thread, NULL) == 0 && dup2(kept, 2) == 2);
  CHECK_COUNT(report.live_blocks, ==, 3);
  CHECK_COUNT(status_of(big).live_blocks, ==, 3);
  return 0;
}
