/* fault: see fault.h.                                                                               floor: os */
#include "os/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <ucontext.h>

#define EXPLAINERS 2 /* trapped epochs, guarded blocks */

static struct sigaction before;
static atomic_bool installed;
static fault_explain *_Atomic explainers[EXPLAINERS];

#if defined(__x86_64__)
#define WRITES 2 /* bit of a page fault's error code */
static const char *access_of(const void *context) {
  const ucontext_t *at = context;
  return at->uc_mcontext.gregs[REG_ERR] & WRITES ? "write" : "read";
}
#else
static const char *access_of(const void *context) { return (void)context, "use"; }
#endif

static enum fault_answer ask(const struct fault *fault) {
  enum fault_answer answer = FAULT_OF_OTHERS;
  for (unsigned i = 0; i < EXPLAINERS && answer == FAULT_OF_OTHERS; i++) {
    /* Acquire: pairs with the exchange of the thread that gave it. */
    fault_explain *explain = atomic_load_explicit(&explainers[i], memory_order_acquire);
    if (explain) answer = explain(fault);
  }
  return answer;
}

/* Without a function to call, the retried instruction meets the earlier handler; a signal that a process sent is sent
 * again. */
static void pass_on(int signal, siginfo_t *info, void *context) {
  bool is_default = !(before.sa_flags & SA_SIGINFO) && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN);
  if (is_default || (before.sa_flags & (int)SA_RESETHAND)) {
    sigaction(signal, &before, NULL);
    if (info->si_code <= 0) raise(signal);
  } else if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  struct fault fault = {info->si_addr, access_of(context)};
  int kept = errno;
  enum fault_answer answer = info->si_code > 0 ? ask(&fault) : FAULT_OF_OTHERS;
  errno = kept;
  if (answer != FAULT_MENDED) pass_on(signal, info, context);
}

/* The handler before may run inside ours, so ours blocks what that one does. */
static void install(void) {
  if (atomic_exchange_explicit(&installed, true, memory_order_relaxed)) return;
  sigaction(SIGSEGV, NULL, &before);
  struct sigaction action = {
      .sa_sigaction = on_fault,
      .sa_mask = before.sa_mask,
      .sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART)),
  };
  sigaction(SIGSEGV, &action, NULL);
}

void fault_watch(fault_explain *explain) {
  for (unsigned i = 0; i < EXPLAINERS; i++) {
    fault_explain *found = NULL;
    if (atomic_compare_exchange_strong_explicit(&explainers[i], &found, explain, memory_order_release,
                                                memory_order_relaxed) ||
        found == explain)
      break;
  }
  install();
}
