/* fork_returns: a signal handler interrupts malloc, forks, and returns in the child, which goes on with that malloc.
 * The child then behaves like any other: a double free, whose abort waits until the thread holds no lock, ends it. */
#include "../check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { CHILDREN = 60, BLOCKS = 40 };

static volatile sig_atomic_t children, is_child;

static void set_timer(suseconds_t every) {
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, every}, {0, every}}, NULL) == 0);
}

static void fork_and_return(int unused) {
  (void)unused;
  const int kept = errno;
  if (is_child || children == CHILDREN) return;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) is_child = 1; /* a child inherits no timer */
  else children++;
  errno = kept;
}

static void allocate_and_free(void) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = malloc(300000 + i * 70000);
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
}

/* Memory that was free when such a child began is never reused there, and a free of it is not reported. This uses new
 * memory. */
static void free_twice(void) {
  void *volatile block = malloc((size_t)64 << 20);
  free(block);
  free(block);
}

int main(void) {
  CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
  CHECK(signal(SIGALRM, fork_and_return) != SIG_ERR);
  set_timer(1000);
  while (!is_child && children < CHILDREN) allocate_and_free();
  if (is_child) {
    free_twice();
    _exit(0);
  }
  set_timer(0);
  for (int i = 0; i < CHILDREN; i++) {
    int status;
    CHECK(wait(&status) > 0);
    CHECK_COUNT(WIFSIGNALED(status) ? WTERMSIG(status) : 0, ==, SIGABRT);
  }
  return 0;
}
