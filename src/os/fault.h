/* fault: explains an access to memory that may not be touched.                                      floor: os
 *
 * The library has one handler of SIGSEGV, from the first fault_watch on. It asks each explainer. If none of them knows
 * the address, the handler calls the one that the program had until then, or the process ends as it would have. A
 * program that installs a handler later replaces this one.
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
