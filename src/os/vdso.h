/* vdso: finds the kernel's clock.                                                                   floor: os
 *
 * The kernel maps a small library into each process, the vDSO, whose functions read clocks without a system call.
 * libc's clock_gettime calls them, too. A program, or a preloaded library such as libfaketime, may stand in for libc's
 * function, and allocate in its own, perhaps under a mutex. This library asks for the time while it holds locks, so
 * there it would wait for itself. */
#ifndef TSLAB_OS_VDSO_H
#define TSLAB_OS_VDSO_H

#include "base/attr.h"
#include <time.h>

typedef int clock_function(clockid_t, struct timespec *);

/* Returns the vDSO's clock_gettime; NULL if the process has no vDSO, or none with such a function. */
HIDDEN clock_function *vdso_clock(void);

#endif
