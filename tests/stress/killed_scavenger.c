/* killed_scavenger: a seccomp filter ends the thread that makes a certain system call, and not the process. That thread
 * is the scavenger. A call that ends the scavenger must not wait for a thread that is gone. */
#include "../check.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { BLOCKS = 64, BYTES = 60000 };

static unsigned threads(void) { /* not by the system call that the filter forbids */
  struct statx status;
  CHECK(statx(AT_FDCWD, "/proc/self/task", 0, STATX_NLINK, &status) == 0);
  return status.stx_nlink - 2;
}

static void start_scavenger(void) {
  for (int i = 0; i < BLOCKS || threads() == 1; i++) {
    void *block = malloc(BYTES);
    CHECK(block != NULL);
    memset(block, 1, BYTES);
    if (i >= BLOCKS) free(block), usleep(1000);
  }
}

static int install_filter(void) {
  const struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 0, 1), /* publication looks at its file */
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof rules / sizeof *rules, (struct sock_filter *)rules};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

int main(void) {
  alarm(60);
  start_scavenger();
  if (install_filter() != 0) return 77;
  while (threads() != 1) free(malloc(BYTES)), usleep(1000);
  for (int i = 0; i < 2; i++) CHECK(unshare(-1) == -1 && errno == EINVAL);
  free(malloc(BYTES));
  return 0;
}
