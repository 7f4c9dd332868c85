/* kernel: a system call gives the error's number and leaves errno as it was; sets of signals are the kernel's. */
#include "../check.h"
#include "base/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void test_call(void) {
  errno = EDOM;
  CHECK_COUNT(kernel_call(SYS_close, -1, 0, 0, 0, 0, 0), ==, -EBADF);
  CHECK_COUNT(kernel_call(SYS_getpid, 0, 0, 0, 0, 0, 0), ==, getpid());
  CHECK_COUNT(errno, ==, EDOM);
}

static long map_file(int file, long offset) {
  return kernel_call(SYS_mmap, 0, 1, PROT_READ, MAP_PRIVATE, file, offset);
}

static void test_six_arguments(void) {
  const int file = open("/proc/self/exe", O_RDONLY);
  CHECK_COUNT(map_file(file, 1), ==, -EINVAL);
  CHECK_COUNT(map_file(-1, 0), ==, -EBADF);
  const long at = map_file(file, 0);
  CHECK(at > 0 && memcmp((const void *)at, "\177ELF", 4) == 0);
  CHECK(munmap((void *)at, 1) == 0 && close(file) == 0);
}

static bool libc_blocks(int signal) {
  sigset_t blocked;
  CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
  return sigismember(&blocked, signal) == 1;
}

static void test_signals(void) {
  const int last = 64;
  const signal_set wanted = signal_set_of(SIGUSR1) | signal_set_of(last), before = signals_change(SIG_BLOCK, wanted);
  CHECK((before & wanted) == 0 && (signals_blocked() & wanted) == wanted);
  CHECK(libc_blocks(SIGUSR1) && libc_blocks(last) && !libc_blocks(SIGUSR2));
  CHECK(signals_pending() == 0);
  CHECK(raise(SIGUSR1) == 0);
  CHECK(signals_pending() == signal_set_of(SIGUSR1));
  CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR);
  CHECK(signals_pending() == 0);
  CHECK(signals_change(SIG_SETMASK, before) == (before | wanted));
  CHECK(signals_blocked() == before && !libc_blocks(SIGUSR1));
}

int main(void) {
  test_call();
  test_six_arguments();
  test_signals();
  return 0;
}
