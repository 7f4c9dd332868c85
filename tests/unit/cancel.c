/* A pending cancellation does not end a thread inside the library: no call of malloc's family is a cancellation point
 * in glibc either. Each thread here first cancels itself, and must reach the end of its work. */
#include "../check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

static char *volatile block;

static void uses_the_family(void) {
  block = tslab_malloc(100);
  block = tslab_realloc(block, 5 << 20);
  tslab_free(block);
  tslab_purge();
  tslab_mallinfo2();
}

static void tells_misuse(void) {
  static char ours;
  block = &ours;
  tslab_free(block); /* TSLAB_ON_MISUSE=report: a line, and the program goes on */
}

static int collect(const char *piece, size_t length, void *sum) {
  (void)piece;
  *(size_t *)sum += length;
  return 0;
}

static void asks_for_figures(void) {
  size_t length = 0;
  tslab_malloc_stats();
  CHECK(tslab_stats_json(collect, &length) == 0);
  CHECK_COUNT(length, >, 1000);
}

static void lives_in_an_epoch(void) {
  const tslab_epoch e = tslab_epoch_open("cancelled");
  tslab_epoch_report report;
  CHECK(tslab_epoch_enter(e) == 0);
  block = tslab_malloc(100000);
  CHECK(tslab_epoch_leave(e) == 0);
  tslab_free(block);
  CHECK(tslab_epoch_close(e, &report) == 0);
}

static volatile bool finished;

static void *cancelled(void *does) {
  CHECK(pthread_cancel(pthread_self()) == 0); /* is seen at the next cancellation point */
  (*(void (**)(void))does)();
  finished = true;
  pthread_testcancel();
  return NULL;
}

static void run(void (*does)(void)) {
  pthread_t thread;
  void *result;
  finished = false;
  CHECK(pthread_create(&thread, NULL, cancelled, &does) == 0);
  CHECK(pthread_join(thread, &result) == 0);
  CHECK(finished);
  CHECK(result == PTHREAD_CANCELED);
}

static void leaves(void) { exit(0); }

/* Started anew, for a child without an exec writes no statistics at its exit. */
static void figures_are_whole(const char *self) {
  char path[64], setting[96], text[64] = "";
  snprintf(path, sizeof path, "/tmp/tslab-test-cancel.%d", getpid());
  snprintf(setting, sizeof setting, "TSLAB_STATS_AT_EXIT=%s", path);
  const pid_t child = fork();
  if (child == 0) {
    putenv(setting);
    execl(self, self, "leaves", (char *)NULL);
    _exit(127);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const int file = open(path, O_RDONLY);
  CHECK(file >= 0);
  CHECK(lseek(file, -1, SEEK_END) > 200 && read(file, text, sizeof text) == 1 && text[0] == '\n');
  close(file);
  unlink(path);
}

int main(int count, char **arguments) {
  if (count > 1) run(leaves);
  run(uses_the_family);
  run(tells_misuse);
  run(asks_for_figures);
  run(lives_in_an_epoch);
  figures_are_whole(arguments[0]);
  return 0;
}
