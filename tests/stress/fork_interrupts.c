/* fork_interrupts: a program of one thread, whose signal handler forks, calls functions of libc that hold locks of
 * libc's. fork is async-signal-safe, and in a process of one thread glibc's fork takes none of these locks. The library
 * has a thread of its own, which must not change that. */
#include "beat.h"
#include "scavenger.h"

#include <dlfcn.h>
#include <pty.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>

enum { FORKS = 150, HANG_S = 60, PERIOD_US = 700 };

static volatile sig_atomic_t forks;

static void wait_for(pid_t child) {
  int status;
  while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
  CHECK_COUNT(status, ==, 0);
}

static void fork_once(int signal) {
  const int kept = errno;
  (void)signal;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(0);
  wait_for(child);
  forks++;
  errno = kept;
}

static void flush_all(void) { fflush(NULL); }

static void ask_for_user(void) { CHECK(getpwnam("root") != NULL); }

static void read_a_line(void) {
  char *line = NULL;
  size_t capacity = 0;
  FILE *const file = fopen("/proc/self/status", "r");
  CHECK(file != NULL && getline(&line, &capacity, file) > 0);
  free(line);
  fclose(file);
}

static void open_terminal(void) {
  int terminal;
  const pid_t child = forkpty(&terminal, NULL, NULL, NULL);
  if (child == 0) _exit(0);
  if (child < 0) return; /* not every sandbox has terminals */
  wait_for(child);
  close(terminal);
}

static const char *library;
static void load_library(void) {
  void *const loaded = dlopen(library, RTLD_NOW);
  CHECK(loaded != NULL);
  dlclose(loaded);
}

int main(int argc, char **argv) {
  void (*const calls[])(void) = {flush_all, ask_for_user, read_a_line, open_terminal, load_library};
  struct sigaction action = {.sa_handler = fork_once, .sa_flags = SA_RESTART};
  CHECK(argc == 2);
  library = argv[1];
  const pid_t watch = fork(); /* a hang blocks no signal of the parent, whose alarm is in use */
  if (watch != 0) {
    int status;
    alarm(HANG_S);
    CHECK(waitpid(watch, &status, 0) == watch);
    CHECK_COUNT(status, ==, 0);
    return 0;
  }
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    make_scavenger();
    forks = 0;
    beat(PERIOD_US);
    while (forks < FORKS / TEST_SCALE) calls[i]();
    beat(0);
  }
  return 0;
}
