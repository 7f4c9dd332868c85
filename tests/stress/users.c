/* users: setgid in a signal handler that interrupts setgid, malloc or free, and in a thread for which the constructor
 * of a library waits. setgid is async-signal-safe, and waits for no lock of the loader.
 *  users LIBRARY */
#include "beat.h"
#include "scavenger.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>

enum { SIGNALS = 400, HANG_S = 60, PERIOD_US = 900 };

static volatile sig_atomic_t signals;

static void set_again(int number) {
  (void)number;
  if (setgid(getgid()) != 0) _exit(3);
  signals++;
}

static void use_memory(void) {
  void *list = NULL;
  fill_list(&list, 80, MIB / 4);
  free_list(&list);
  fill_list(&list, 100000, 4 * MIB);
  free_list(&list);
}

int main(int argc, char **argv) {
  const struct sigaction action = {.sa_handler = set_again, .sa_flags = SA_RESTART};
  CHECK(argc == 2);
  const pid_t child = fork(); /* SIGALRM is in use */
  if (child != 0) {
    int status;
    alarm(HANG_S);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_COUNT(status, ==, 0);
    return 0;
  }
  make_scavenger();
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  beat(PERIOD_US);
  while (signals < SIGNALS / TEST_SCALE) {
    for (int i = 0; i < 100; i++) CHECK(setgid(getgid()) == 0);
    use_memory();
  }
  beat(0);
  CHECK(dlopen(argv[1], RTLD_NOW) != NULL);
  CHECK(seteuid((uid_t)-1) == -1 && errno == EINVAL);
  return 0;
}
