/* one_thread: a program of one thread forks and sets its user beside the library's thread, and its signal handler does
 * so, too. libc waits for no lock in this, also if there is no /proc or the kernel has a thread for io_uring.
 *  one_thread [no-proc|io-uring] */
#include "beat.h"
#include "scavenger.h"

#include <dlfcn.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SIGNALS = 1500, HANG_S = 60, PERIOD_US = 300 };

static volatile sig_atomic_t signals;

static const char *is_single; /* libc's own variable, of which a program may have a copy */
static void check_single(void) { CHECK(*is_single); } /* otherwise fork takes locks of libc's */

static void fork_once(void) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  while (child > 0 && waitpid(child, NULL, 0) < 0) CHECK(errno == EINTR);
  CHECK(child > 0);
}

static void on_alarm(int number) {
  (void)number;
  const int before = errno;
  if (setuid(geteuid()) != 0) _exit(3);
  if (signals % 64 == 0) fork_once();
  signals++;
  errno = before;
}

static char folder[] = "/tmp/tslab-one-thread-XXXXXX"; /* empty */

static void hide_proc(void) {
  if (chroot(folder) != 0) exit(SKIPPED); /* not root */
  CHECK(chdir("/") == 0);
}

static void start_kernel_thread(void) {
  struct io_uring_params parameters = {.flags = IORING_SETUP_SQPOLL};
  if (syscall(SYS_io_uring_setup, 8, &parameters) < 0) exit(SKIPPED); /* not here, or forbidden */
}

int main(int argc, char **argv) {
  const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  if ((is_single = dlsym(RTLD_NEXT, "__libc_single_threaded")) == NULL) return SKIPPED; /* another libc */
  CHECK(mkdtemp(folder) != NULL);
  const pid_t child = fork(); /* SIGALRM is in use */
  if (child != 0) {
    int status;
    alarm(HANG_S);
    CHECK(waitpid(child, &status, 0) == child && rmdir(folder) == 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) return SKIPPED;
    CHECK_COUNT(status, ==, 0);
    return 0;
  }
  CHECK(pthread_atfork(check_single, NULL, NULL) == 0);
  make_scavenger();
  if (argc > 1 && strcmp(argv[1], "no-proc") == 0) hide_proc();
  if (argc > 1 && strcmp(argv[1], "io-uring") == 0) start_kernel_thread();
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  beat(PERIOD_US);
  for (unsigned turn = 0; signals < SIGNALS / TEST_SCALE; turn++) {
    for (int i = 0; i < 100; i++) CHECK(setuid(geteuid()) == 0);
    if (turn % 16 == 0) fork_once();
    tslab_free(tslab_malloc(1 << 20)); /* keeps the library's thread awake */
  }
  beat(0);
  return 0;
}
