/* fault.c: see fault.h. */
#include "fault.h"

#include "../check.h"

#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

const char *const fault_names[FAULT_KINDS] = {"mmap",   "munmap",   "purge",      "advise",
                                              "mremap", "mprotect", "membarrier", "futex"};
static const int errors[FAULT_KINDS] = {ENOMEM, ENOMEM, EINVAL, EINVAL, ENOMEM, ENOMEM, EPERM, EPERM};

/* Memory that the supervisor and its children share. */
static struct shared {
  struct fault_plan plan;
  _Atomic int listener; /* -1: refused */
} *shared;
struct fault_plan *fault;

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

static bool fails(enum fault_kind kind) {
  atomic_fetch_add(&fault->calls_of[kind], 1);
  if (!(atomic_load(&fault->kinds) >> kind & 1)) return false;
  const uint64_t n = atomic_fetch_add(&fault->calls, 1);
  if (n < atomic_load(&fault->from) || n >= atomic_load(&fault->to)) return false;
  atomic_fetch_add(&fault->failed_of[kind], 1);
  return true;
}

static bool refuses_all(enum fault_kind kind) {
  return (atomic_load(&fault->kinds) >> kind & 1) && atomic_load(&fault->from) == 0 &&
         atomic_load(&fault->to) == UINT64_MAX;
}

/* The error that the call gets; 0: none. A purge is tried in two ways, the second for locked pages: it is one call, and
 * the second way fails where the first did. */
static int answer(const struct seccomp_notif *call) {
  static uint32_t purger; /* the thread whose purge failed last */
  enum fault_kind kind;
  switch (call->data.nr) {
  case SYS_mmap: kind = FAULT_MMAP; break;
  case SYS_mremap: kind = FAULT_MREMAP; break;
  case SYS_mprotect: kind = FAULT_MPROTECT; break;
  case SYS_membarrier: kind = FAULT_MEMBARRIER; break;
  case SYS_futex:
    kind = FAULT_FUTEX;
    if ((call->data.args[1] & FUTEX_CMD_MASK) != FUTEX_WAIT) return refuses_all(kind) ? errors[kind] : 0;
    break;
  default:
    kind = FAULT_ADVISE;
    if (call->data.args[2] == MADV_DONTNEED) kind = FAULT_PURGE;
    if (call->data.args[2] == MADV_DONTNEED_LOCKED) return purger == call->pid ? errors[FAULT_PURGE] : 0;
  }
  const bool failed = fails(kind);
  if (kind == FAULT_PURGE && failed) purger = call->pid;
  if (kind == FAULT_PURGE && !failed && purger == call->pid) purger = 0;
  return failed ? errors[kind] : 0;
}

int munmap(void *at, size_t length) {
  if (fault && fails(FAULT_MUNMAP)) {
    errno = errors[FAULT_MUNMAP];
    return -1;
  }
  return (int)syscall(SYS_munmap, at, length);
}

/* ---- the supervisor ---------------------------------------------------------------------------------------------- */

/* Where the library's calls come from: it has code in two of its mappings (cmake/rare.ld). */
static uintptr_t calls_start, calls_end;

static int look_at_object(struct dl_phdr_info *object, size_t size, void *unused) {
  (void)size, (void)unused;
  const uintptr_t at = (uintptr_t)&tslab_version;
  bool is_library = false;
  calls_start = UINTPTR_MAX;
  calls_end = 0;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *const segment = &object->dlpi_phdr[i];
    const uintptr_t start = object->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;
    if (segment->p_type != PT_LOAD) continue;
    if (at >= start && at < end) is_library = true;
    if (start < calls_start) calls_start = start;
    if (end > calls_end) calls_end = end;
  }
  return is_library;
}

static void find_calls(void) {
#if defined(__x86_64__) || defined(__aarch64__)
  CHECK(dl_iterate_phdr(look_at_object, NULL) == 1);
#else
  (void)look_at_object;
  calls_start = (uintptr_t)&syscall; /* through libc's function, whose body is short */
  calls_end = calls_start + 128;
#endif
}

static _Noreturn void supervise(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int listener;
  while ((listener = atomic_load(&shared->listener)) == 0) usleep(1000);
  while (listener > 0) {
    struct seccomp_notif call;
    memset(&call, 0, sizeof call);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
      if (errno == EINTR || errno == ENOENT) continue; /* the caller was killed meanwhile */
      break;
    }
    const uintptr_t from = call.data.instruction_pointer;
    const int error = from >= calls_start && from < calls_end ? answer(&call) : 0;
    struct seccomp_notif_resp response = {.id = call.id, .error = -error};
    if (error == 0) response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
  }
  _exit(0);
}

#define ASK(number) \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)

static int install_filter(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ASK(SYS_mmap),
      ASK(SYS_madvise),
      ASK(SYS_mremap),
      ASK(SYS_mprotect),
      ASK(SYS_membarrier),
      ASK(SYS_futex),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

bool fault_start(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  fault = &shared->plan;
  find_calls();
  /* Descriptors are shared, so that the listener is the supervisor's too. */
  const long child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
  CHECK(child >= 0);
  if (child == 0) supervise();
  const int listener = install_filter();
  atomic_store(&shared->listener, listener > 0 ? listener : -1);
  return listener > 0;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

void fault_set(unsigned kinds, uint64_t from, uint64_t to) {
  memset(fault, 0, sizeof *fault);
  atomic_store(&fault->from, from);
  atomic_store(&fault->to, to);
  atomic_store(&fault->kinds, kinds);
}

void fault_stop(void) { atomic_store(&fault->to, 0); }

uint64_t fault_failed(void) {
  uint64_t sum = 0;
  for (int kind = 0; kind < FAULT_KINDS; kind++) sum += atomic_load(&fault->failed_of[kind]);
  return sum;
}
