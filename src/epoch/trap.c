/* trap: see trap.h.                                                                                  floor: epoch */
#include "epoch/trap.h"

#include "base/log.h"
#include "os/os.h"
#include <signal.h>

static struct sigaction before;
static _Atomic bool installed;

/* Restores the earlier handler and returns to the faulting instruction, whose next fault then goes to that handler. */
static void on_fault(int signal, siginfo_t *info, void *context) {
  (void)context;
  struct run *run = pages_run_of(info->si_addr);
  if (run && run->kind == RUN_TRAP)
    log_line("use of %p after destroy of epoch %zu \"%s\"", info->si_addr, run->size, epoch_at(run->epoch)->label);
  sigaction(signal, &before, NULL);
}

static void install(void) {
  if (atomic_exchange(&installed, true)) return;
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigaction(SIGSEGV, &action, &before);
}

bool trap_set(struct run *run) {
  uint32_t index = run->epoch;
  if (!os_forbid(run_start(run), run_bytes(run))) return false;
  install();
  pages_reuse(run, RUN_TRAP);
  run->epoch = index;
  run->size = epoch_id(epoch_at(index));
  return true;
}
