/* fork_handler_signals: fork handlers of a program of one thread run with the program's own signals. One starts another
 * program, which a signal ends. One waits in a call that a signal ends. And one stays in the child until a signal ends
 * the child. */
#include "../check.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

enum { FORKS = 3, PATIENCE_S = 20 };

extern char **environ;
static pid_t helper;
static int never[2];
static bool waits_in_parent, stays_in_child;

static void start_helper(void) {
  static char name[] = "sleep", seconds[] = "1000";
  char *const arguments[] = {name, seconds, NULL};
  CHECK(posix_spawnp(&helper, name, NULL, NULL, arguments, environ) == 0);
}

static void end_helper(void) {
  int status;
  CHECK(kill(helper, SIGTERM) == 0 && waitpid(helper, &status, 0) == helper);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void do_nothing(int signal) { (void)signal; }

static void in_parent(void) {
  char byte;
  start_helper();
  if (!waits_in_parent) return;
  alarm(1);
  CHECK(read(never[0], &byte, 1) == -1 && errno == EINTR);
}

static void in_child(void) {
  while (stays_in_child) pause();
}

static pid_t fork_once(void) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(0);
  return child;
}

static void use_signals(void) {
  int status;
  const struct sigaction action = {.sa_handler = do_nothing};
  CHECK(sigaction(SIGALRM, &action, NULL) == 0 && pipe(never) == 0);
  start_helper();
  CHECK(pthread_atfork(end_helper, in_parent, in_child) == 0);
  for (int i = 0; i < FORKS; i++) CHECK(waitpid(fork_once(), &status, 0) > 0 && status == 0);
  waits_in_parent = true;
  CHECK(waitpid(fork_once(), &status, 0) > 0 && status == 0);
  waits_in_parent = false;
  stays_in_child = true;
  const pid_t child = fork_once();
  CHECK(kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  end_helper();
}

/* A process that waits for ever blocks the signals that would end it. */
int main(void) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    CHECK(setpgid(0, 0) == 0);
    use_signals();
    _exit(0);
  }
  for (int i = 0; i < PATIENCE_S * 20 && waitpid(child, &status, WNOHANG) == 0; i++) usleep(50000);
  const bool is_stuck = kill(child, 0) == 0;
  if (is_stuck) kill(-child, SIGKILL);
  CHECK(!is_stuck);
  CHECK_COUNT(status, ==, 0);
  return 0;
}
