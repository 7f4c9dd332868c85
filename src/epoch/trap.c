/* trap: see trap.h.                                                                                  floor: epoch */
#include "epoch/trap.h"

#include "base/log.h"
#include "os/fault.h"
#include "os/os.h"

static enum fault_answer explain(const struct fault *fault) {
  struct run *run = pages_run_of(fault->address);
  if (!run || run->kind != RUN_TRAP) return FAULT_OF_OTHERS;
  log_line("use of %p after destroy of epoch %zu \"%s\"", (const void *)fault->address, run->size,
           epoch_at(run->epoch)->label);
  return FAULT_TOLD;
}

bool trap_set(struct run *run) {
  uint32_t index = run->epoch;
  if (!os_forbid(run_start(run), run_bytes(run))) return false;
  fault_watch(explain);
  pages_reuse(run, RUN_TRAP);
  run->epoch = index;
  run->size = epoch_id(epoch_at(index));
  return true;
}
