/* waited_signals: a program of one thread blocks signals and waits for them. A signal that is sent to the process does
 * not go to the library's thread, where it would end the process: it waits for the program. The six signals of faults
 * are an exception, see docs/platforms.md. */
#include "scavenger.h"

#include <signal.h>

enum { WAIT_S = 10 };

static bool is_left_out(int number) {
  static const int left_out[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
    if (number == left_out[i]) return true;
  return number >= 32 && number < SIGRTMIN; /* libc's own */
}

int main(void) {
  sigset_t all, one;
  make_scavenger();
  CHECK(sigfillset(&all) == 0 && sigprocmask(SIG_BLOCK, &all, NULL) == 0);
  for (int number = 1; number <= SIGRTMAX; number++) {
    if (is_left_out(number)) continue;
    CHECK(kill(getpid(), number) == 0);
    CHECK(sigemptyset(&one) == 0 && sigaddset(&one, number) == 0);
    CHECK_COUNT(sigtimedwait(&one, NULL, &(struct timespec){.tv_sec = WAIT_S}), ==, number);
  }
  CHECK(other_thread() != 0);
  return 0;
}
