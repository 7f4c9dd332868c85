/* fault: see fault.h.                                                                               floor: os */
#include "os/fault.h"

#include "base/log.h"
#include "os/os.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <ucontext.h>

#define EXPLAINERS 2 /* trapped epochs, guarded blocks */

static struct sigaction before;
static atomic_bool installed, is_ready; /* is_ready: `before` is what the handler replaced */
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

static bool is_default(const struct sigaction *action) {
  return !(action->sa_flags & SA_SIGINFO) && (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN);
}

/* Without a function to call, the retried instruction meets the earlier handler; a signal that a process sent is sent
 * again. */
static void pass_on(int signal, siginfo_t *info, void *context) {
  if (is_default(&before) || (before.sa_flags & (int)SA_RESETHAND)) {
    sigaction(signal, &before, NULL);
    if (info->si_code <= 0) raise(signal);
  } else if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
}

#define RESTS_MOST 1000 /* a fork child may not have the thread that installs */

/* A thread may fault while another one still looks what the handler replaced. */
static void wait_until_ready(void) {
  for (int i = 0; i < RESTS_MOST && !atomic_load_explicit(&is_ready, memory_order_acquire); i++) os_rest();
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  struct fault fault = {info->si_addr, access_of(context)};
  int kept = errno;
  wait_until_ready();
  enum fault_answer answer = info->si_code > 0 ? ask(&fault) : FAULT_OF_OTHERS;
  if (answer == FAULT_TOLD) log_tell_last(); /* the thread may hold a lock, and does not go on */
  errno = kept;
  if (answer != FAULT_MENDED) pass_on(signal, info, context);
}

/* The handler before may run inside ours. So ours blocks what that one does, and runs on the stack that that one
 * expects: an alternate stack may have little room. */
static void set_handler(struct sigaction *replaced) {
  int stack = is_default(&before) ? SA_ONSTACK : before.sa_flags & SA_ONSTACK;
  struct sigaction action = {
      .sa_sigaction = on_fault,
      .sa_mask = before.sa_mask,
      .sa_flags = SA_SIGINFO | stack | (before.sa_flags & (SA_NODEFER | SA_RESTART)),
  };
  sigaction(SIGSEGV, &action, replaced);
}

/* Another thread may set a handler between two calls. The call that replaces one tells which, so none is lost. */
static void install(void) {
  if (atomic_exchange_explicit(&installed, true, memory_order_relaxed)) return;
  struct sigaction replaced;
  signal_set blocked = os_block_signals(); /* a handler that faults here would wait for this thread */
  sigaction(SIGSEGV, NULL, &before);
  for (set_handler(&replaced); replaced.sa_sigaction != on_fault; set_handler(&replaced)) {
    bool is_known = replaced.sa_sigaction == before.sa_sigaction && replaced.sa_flags == before.sa_flags;
    before = replaced;
    if (is_known) break;
  }
  atomic_store_explicit(&is_ready, true, memory_order_release); /* pairs with wait_until_ready */
  os_restore_signals(blocked);
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
