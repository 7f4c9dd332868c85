/* fork_beside: a program forks beside a thread that libc made by another name than pthread_create, and that never
 * allocates. It holds the lock of a stream, which the child has anew. And a child of a program of one thread, which had
 * the library's thread beside it, ends by pthread_exit like any process: with its exit handlers. */
#include "scavenger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <threads.h>

enum { PATIENCE_S = 20, FROM_EXIT_HANDLER = 7 };

static atomic_bool holds, is_over;

static int hold_stream(void *unused) {
  (void)unused;
  flockfile(stdout);
  holds = true;
  while (!is_over) usleep(1000);
  funlockfile(stdout);
  return 0;
}

static void check_status(pid_t child, int wanted) {
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, wanted << 8);
}

static void leave(void) { _exit(FROM_EXIT_HANDLER); }

static void end_child_by_its_thread(void) {
  make_scavenger();
  const pid_t child = fork();
  if (child == 0) {
    alarm(PATIENCE_S);
    CHECK(atexit(leave) == 0);
    pthread_exit(NULL);
  }
  check_status(child, FROM_EXIT_HANDLER);
}

static void fork_beside_a_thread(void) {
  thrd_t thread;
  CHECK(thrd_create(&thread, hold_stream, NULL) == thrd_success);
  while (!holds) usleep(1000);
  const pid_t child = fork();
  if (child == 0) {
    alarm(PATIENCE_S);
    printf("the stream is free in the child\n");
    _exit(fflush(stdout) != 0);
  }
  check_status(child, 0);
  is_over = true;
  CHECK(thrd_join(thread, NULL) == thrd_success);
}

int main(void) {
  end_child_by_its_thread();
  fork_beside_a_thread();
  return 0;
}
