/* fault: who explains it when an instruction touches memory that it may not.                        floor: os
 *
 * One handler of SIGSEGV for all of the library, from the first fault_watch on. It asks each explainer; what none of
 * them knows goes to the handler that the program had until then, or ends the process as it would have. A program that
 * installs a handler of its own later replaces this one, and calls it if it calls what was there before.
 *
 * Threads: fault_watch by any, no lock held; explainers run in a signal handler. */
#ifndef TSLAB_OS_FAULT_H
#define TSLAB_OS_FAULT_H

#include "base/attr.h"

struct fault {
  const char *address;
  const char *access; /* "read" or "write"; "use" where the processor does not say */
};

enum fault_answer {
  FAULT_OF_OTHERS,
  FAULT_TOLD,   /* it is explained, and goes on to the handler before, or ends the process */
  FAULT_MENDED, /* the instruction is to be tried again */
};
typedef enum fault_answer fault_explain(const struct fault *fault);

/* The function is asked about every fault from now on. It may be given again. */
HIDDEN void fault_watch(fault_explain *explain);

#endif
