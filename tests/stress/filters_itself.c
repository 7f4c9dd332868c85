/* filters_itself: a child of a daemon installs a filter that ends the process for a call that it does not know, and
 * goes on allocating for a second and more, with default settings. So the library makes no thread there. sshd installs
 * its filter by prctl, chronyd by libseccomp. */
#include "memory.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

static const int allowed[] = {SYS_madvise, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_futex, SYS_membarrier,
                              SYS_clock_gettime, SYS_clock_nanosleep, SYS_write, SYS_exit_group};
enum { ALLOWED = sizeof allowed / sizeof *allowed, SOME = 0x7fff0000, ENDS = 0 };

static bool by_prctl(void) {
  struct sock_filter rules[2 * ALLOWED + 2] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  unsigned short count = 1;
  for (int i = 0; i < ALLOWED; i++) {
    rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1);
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL);
  const struct sock_fprog program = {count, rules};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* libseccomp's functions, without its headers. */
static bool by_library(void) {
  void *const library = dlopen("libseccomp.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return false;
  void *(*const init)(uint32_t) = (void *(*)(uint32_t))dlsym(library, "seccomp_init");
  int (*const add)(void *, uint32_t, int, unsigned, ...) =
      (int (*)(void *, uint32_t, int, unsigned, ...))dlsym(library, "seccomp_rule_add");
  int (*const load)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "seccomp_load"); /* as the program finds it */
  CHECK(init && add && load);
  void *const filter = init(ENDS);
  CHECK(filter != NULL);
  for (int i = 0; i < ALLOWED; i++) CHECK(add(filter, SOME, allowed[i], 0) == 0);
  return load(filter) == 0;
}

static void go_on(void) {
  for (int round = 0; round < 30; round++) {
    void *list = NULL;
    CHECK_COUNT(fill_list(&list, 100000, 8 * MIB), >=, 8 * MIB);
    free_list(&list);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 50000000}, NULL);
  }
}

static bool is_passed(bool (*install)(void)) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    if (!install()) _exit(SKIPPED);
    go_on();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  const bool is_skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
  if (!is_skipped) CHECK_COUNT(status, ==, 0);
  return !is_skipped;
}

int main(void) {
  free(malloc(100));
  const bool first = is_passed(by_prctl), second = is_passed(by_library);
  return first || second ? 0 : SKIPPED;
}
