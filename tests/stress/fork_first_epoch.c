/* fork_first_epoch: the first thing that the child of _Fork does is to open an epoch, while another thread of the
 * parent may have held a lock. The epoch is one of the child's own, so it is open until the child ends it. */
#include "../check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FORKS = 400, THREADS = 2, LARGE = 100000 };

static _Atomic bool finished;

/* Takes the library's locks all the time. */
static void *allocate(void *unused) {
  while (!finished) {
    char *const blocks[] = {tslab_malloc(LARGE), tslab_malloc(3 * LARGE), tslab_malloc(5 * LARGE)};
    for (int i = 0; i < 3; i++) tslab_free(blocks[i]);
  }
  return unused;
}

static tslab_epoch open_epoch(void) {
  const tslab_epoch_options options = {
      .struct_size = sizeof options, .label = "first", .flags = TSLAB_EPOCH_DESTROYABLE};
  return tslab_epoch_open_with(&options);
}

static void use(void) {
  const tslab_epoch epoch = open_epoch();
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  char *const small = tslab_malloc(100), *const large = tslab_malloc(LARGE);
  CHECK(small != NULL && large != NULL && tslab_epoch_of(small) == epoch);
  CHECK(tslab_epoch_leave(epoch) == 0);
  CHECK_COUNT(tslab_epoch_destroy(epoch, NULL), ==, 0);
}

int main(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, allocate, NULL) == 0);
  for (int i = 0; i < FORKS; i++) {
    use(); /* the next epoch of this thread is ready */
    int status;
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
      use();
      _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_COUNT(status, ==, 0);
  }
  finished = true;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
