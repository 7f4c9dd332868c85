/* filter.h: a seccomp filter as a sandbox installs one after its program's start. */
#ifndef TSLAB_TESTS_FILTER_H
#define TSLAB_TESTS_FILTER_H

#include "../check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FILTER_MORE 8

/* The system calls that the library makes after its start, and those by which a test says how it ended. */
static const int filter_always[] = {
    SYS_madvise, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_futex, SYS_membarrier,
    SYS_clock_gettime, SYS_clock_nanosleep, SYS_write, SYS_exit, SYS_exit_group};
enum { FILTER_ALWAYS = sizeof filter_always / sizeof *filter_always };

/* Installs a filter by `install` that allows these, and those in `more`, which ends with -1. `otherwise` says what the
 * kernel does at every other call. Returns false if this machine does not allow filters. */
static inline bool install_filter_by(int (*install)(const struct sock_fprog *), uint32_t otherwise,
                                     const int more[FILTER_MORE]) {
  struct sock_filter rules[2 * (FILTER_ALWAYS + FILTER_MORE) + 2];
  unsigned short count = 0;
  rules[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < FILTER_ALWAYS || more[i - FILTER_ALWAYS] >= 0; i++) {
    const uint32_t number = (uint32_t)(i < FILTER_ALWAYS ? filter_always[i] : more[i - FILTER_ALWAYS]);
    rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
  const struct sock_fprog program = {count, rules};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  return install(&program) == 0;
}

static inline int filter_this_thread(const struct sock_fprog *program) {
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program);
}
static inline int filter_all_threads(const struct sock_fprog *program) {
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program);
}

/* `flags`: 0 or SECCOMP_FILTER_FLAG_TSYNC. */
static inline bool install_filter_with(uint32_t otherwise, unsigned flags, const int more[FILTER_MORE]) {
  return install_filter_by(flags ? filter_all_threads : filter_this_thread, otherwise, more);
}

/* The same; every other call fails with EPERM. */
static inline bool install_filter(unsigned flags, const int more[FILTER_MORE]) {
  if (!install_filter_with(SECCOMP_RET_ERRNO | EPERM, flags, more)) return false;
  errno = 0;
  CHECK(syscall(SYS_getpid) == -1 && errno == EPERM);
  return true;
}

/* From now on the kernel does `action` at the system call `number`, and allows every other. Returns what the kernel
 * returned: below 0 if this machine does not allow that. */
static inline int filter_call(uint32_t number, uint32_t action, unsigned flags) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* From now on the call does nothing, and fails with `error`; 0: it says that it is done. Returns false if this machine
 * does not allow filters. */
static inline bool answer_with(uint32_t number, uint32_t error) {
  return filter_call(number, SECCOMP_RET_ERRNO | error, 0) == 0;
}

#endif
