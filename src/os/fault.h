/* fault: explains an access to memory that may not be touched.                                      floor: os
 *
 * The library has one handler of SIGSEGV, from the first fault_watch on. It asks each explainer. If none of them knows
 * the address, the handler calls the one that the program had until then, or the process ends as it would have. A
 * program that installs a handler later replaces this one.
 *
 * Threads: any thread without a lock calls fault_watch; explainers run in a signal handler. */
#ifndef TSLAB_OS_FAULT_H
#define TSLAB_OS_FAULT_H

#include "base/attr.h"

struct fault {
  const char *address;
  const char *access; /* "read" or "write"; "use" where the processor does not say */
};

enum fault_answer {
  FAULT_OF_OTHERS,
  FAULT_TOLD,   /* explained: the earlier handler gets it, or the process ends */
  FAULT_MENDED, /* mended: the instruction is tried again */
};
typedef enum fault_answer fault_explain(const struct fault *fault);

/* Asks the function about every fault from now on. A second call with it does nothing. */
HIDDEN void fault_watch(fault_explain *explain);

#endif
