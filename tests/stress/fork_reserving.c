/* fork_reserving: a process is copied by the system call clone just after another thread mapped addresses for the heap,
 * and before that thread noted them. The child can allocate, and keeps the pages that the program had mapped where the
 * heap would grow. A filter traps the thread's mmap, so that the copy comes at this moment, for several mappings of the
 * heap and of its tables. */
#include "filter.h"
#include "memory.h"
#include "occupy.h"

#include <linux/audit.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>

#define MIB ((size_t)1 << 20)
#define PASS 65536 /* an mmap with this offset, which has no meaning without a file, passes the filter */

enum { PATIENCE_S = 20, NO_MEMORY = 3, CHILDREN = 40 };
enum { RUNS, MAPPED, COPIED };

static atomic_int state;
static atomic_bool is_over;
static _Thread_local bool is_worker;

#if defined(__x86_64__)
static void answer(ucontext_t *at, long result) { at->uc_mcontext.gregs[REG_RAX] = result; }
static long argument(const ucontext_t *at, int i) {
  static const int places[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10};
  return at->uc_mcontext.gregs[places[i]];
}
#elif defined(__aarch64__)
static void answer(ucontext_t *at, long result) { at->uc_mcontext.regs[0] = (unsigned long)result; }
static long argument(const ucontext_t *at, int i) { return (long)at->uc_mcontext.regs[i]; }
#else
#define CANNOT_ANSWER
static void answer(ucontext_t *at, long result) { (void)at, (void)result; }
static long argument(const ucontext_t *at, int i) { return (void)at, i; }
#endif

static void wait_while(int seen) {
  while (state == seen) sched_yield();
}

static void on_trap(int signal, siginfo_t *unused, void *context) {
  (void)signal, (void)unused;
  const int kept = errno;
  ucontext_t *const at = context;
  const long got = syscall(SYS_mmap, argument(at, 0), argument(at, 1), argument(at, 2), argument(at, 3), -1L, PASS);
  answer(at, got == -1 ? -errno : got);
  if (is_worker && !is_over) {
    state = MAPPED;
    wait_while(MAPPED);
    state = RUNS;
  }
  errno = kept;
}

/* Traps each mmap of pages that nobody may touch. */
static bool install_trap(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_NONE, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PASS, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  const struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGSYS, &action, NULL) == 0);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static void *work(void *unused) {
  is_worker = true;
  void *list = NULL;
  while (!is_over) {
    void **const block = malloc(3 * MIB);
    CHECK(block != NULL);
    *block = list;
    list = block;
  }
  free_list(&list);
  return unused;
}

static void in_child(void) {
  alarm(PATIENCE_S);
  for (int i = 0; i < 60; i++) {
    char *volatile block = malloc(200000);
    if (!block) _exit(NO_MEMORY);
    *block = 1;
  }
  occupied_are_kept();
  _exit(0);
}

int main(void) {
#ifdef CANNOT_ANSWER
  printf("skipped: this test does not know the machine\n");
  return SKIPPED;
#endif
  pthread_t thread;
  free(malloc(100));
  const struct rlimit limit = {(size_t)1 << 41, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0); /* from now on each mapping is small */
  void *const last = malloc(3 * MIB); /* the heap would grow directly behind it */
  CHECK(last != NULL);
  occupy();
  if (!install_trap()) {
    printf("skipped: seccomp is not allowed here\n");
    return SKIPPED;
  }
  CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
  int failed = 0; /* the worker holds a lock of the heap, so nothing is reported before it has ended */
  for (int children = 0; children < CHILDREN; children++) {
    int status;
    wait_while(RUNS);
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) in_child();
    failed += waitpid(child, &status, 0) != child || status != 0;
    is_over = children + 1 == CHILDREN;
    state = COPIED;
    wait_while(COPIED);
  }
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_COUNT(failed, ==, 0);
  free(last);
  return 0;
}
