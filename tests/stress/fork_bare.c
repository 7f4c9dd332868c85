/* fork_bare: a child of _Fork or clone inherits libc's locks as they were, that of threads' stacks among them. While
 * the parent makes threads, such children allocate and free much: the library makes no thread for that, which could
 * wait for ever. A child of fork gets one, and one of clone whose parent never had a thread but ours. */
#include "../check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CHILDREN = 300, PATIENCE_S = 20, BLOCKS = 64, BYTES = 60000, THREADS_OF_ONE = 3 };

static _Atomic int stop;

static void use_heap(void) {
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = malloc(BYTES)) != NULL);
    memset(blocks[i], 1, BYTES);
  }
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  free(malloc(BYTES));
}

static void *end_at_once(void *unused) { return unused; }

static void *make_threads(void *unused) {
  pthread_t thread;
  while (!stop) CHECK(pthread_create(&thread, NULL, end_at_once, NULL) == 0 && pthread_join(thread, NULL) == 0);
  return unused;
}

/* The kernel counts a process's threads, and two more, as links to this directory. */
static int links_of_threads(void) {
  struct stat status;
  return stat("/proc/self/task", &status) == 0 ? (int)status.st_nlink : -1;
}

static void ends_well(pid_t child) {
  int status;
  alarm(PATIENCE_S);
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, 0);
}

static void live_bare(void) {
  use_heap();
  CHECK_COUNT(links_of_threads(), ==, THREADS_OF_ONE);
  _exit(0);
}

static void live_with_scavenger(void) {
  while (links_of_threads() != THREADS_OF_ONE + 1) use_heap();
  _exit(0);
}

static pid_t bare_fork(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static void gets_scavenger(pid_t child) {
  if (child == 0) live_with_scavenger();
  ends_well(child);
}

int main(void) {
  pthread_t thread;
  if (links_of_threads() < THREADS_OF_ONE) return 77;
  while (links_of_threads() != THREADS_OF_ONE + 1) use_heap();
  gets_scavenger(bare_fork());
  CHECK(pthread_create(&thread, NULL, make_threads, NULL) == 0);
  for (int i = 0; i < CHILDREN; i++) {
    const pid_t child = bare_fork();
    if (child == 0) live_bare();
    ends_well(child);
  }
  gets_scavenger(fork());
  stop = 1;
  CHECK(pthread_join(thread, NULL) == 0);
  return 0;
}
