/* kernel: system calls, and sets of signals, without libc's functions.                              floor: base
 *
 * A program may define any function of libc, and allocate or take a lock in it. The library calls the kernel while it
 * holds locks and while a thread gets its heap, so these calls must not come through a program's function. They also
 * leave errno as it was, are no cancellation points, and map no page of libc. */
#ifndef TSLAB_BASE_KERNEL_H
#define TSLAB_BASE_KERNEL_H

#include "base/attr.h"
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Makes a system call. A negative result is an error number. */
#if defined(__x86_64__)
static inline long kernel_call(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
static inline long kernel_call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
  return x0;
}
#else
static inline long kernel_call(long number, long a, long b, long c, long d, long e, long f) {
  int kept = errno;
  long result = syscall(number, a, b, c, d, e, f);
  if (result == -1) result = -errno;
  errno = kept;
  return result;
}
#endif

/* A set of signals as the kernel reads it: bit N - 1 is signal N. */
typedef uint64_t signal_set;

static inline signal_set signal_set_of(int signal) { return (signal_set)1 << (signal - 1); }

/* Changes which signals this thread blocks, as sigprocmask does (SIG_BLOCK, SIG_SETMASK). Returns the set before. */
static inline signal_set signals_change(int how, signal_set set) {
  signal_set before = 0;
  kernel_call(SYS_rt_sigprocmask, how, (long)&set, (long)&before, sizeof set, 0, 0);
  return before;
}

static inline signal_set signals_blocked(void) { return signals_change(SIG_BLOCK, 0); }

/* Returns the blocked signals that wait for this thread or the process. */
static inline signal_set signals_pending(void) {
  signal_set waiting = 0;
  kernel_call(SYS_rt_sigpending, (long)&waiting, sizeof waiting, 0, 0, 0, 0);
  return waiting;
}

#endif
