/* fork_unborn: threads that have never allocated fork, while another thread ends epochs that have children. A child
 * completes the end of the epoch that this thread was in the middle of, and does so without a heap. */
#include "../check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { FORKS = 400, BLOCKS = 16, BYTES = 8192 };

static _Atomic bool stop;

static void *end_epochs(void *unused) {
  while (!stop) {
    void *blocks[BLOCKS];
    tslab_epoch_options options = {.struct_size = sizeof options, .label = "ends"};
    const tslab_epoch e = tslab_epoch_open_with(&options);
    options.parent = e;
    const tslab_epoch child = tslab_epoch_open_with(&options);
    CHECK(e != 0 && child != 0 && tslab_epoch_enter(e) == 0);
    for (int i = 0; i < BLOCKS; i++) {
      CHECK((blocks[i] = tslab_malloc(BYTES)) != NULL);
      tslab_free(tslab_epoch_malloc(child, 100));
    }
    CHECK(tslab_epoch_leave(e) == 0);
    for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
    CHECK(tslab_epoch_close(e, NULL) == 0);
  }
  return unused;
}

static void *fork_once(void *unused) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, 0);
  return unused;
}

int main(void) {
  pthread_t ends, forks;
  CHECK(pthread_create(&ends, NULL, end_epochs, NULL) == 0);
  for (int i = 0; i < FORKS; i++)
    CHECK(pthread_create(&forks, NULL, fork_once, NULL) == 0 && pthread_join(forks, NULL) == 0);
  stop = true;
  CHECK(pthread_join(ends, NULL) == 0);
  return 0;
}
