/* process: the process's start, and what the kernel says of it and of its threads.                  floor: process */
#ifndef TSLAB_PROCESS_PROCESS_H
#define TSLAB_PROCESS_PROCESS_H

#include "os/lock.h"

HIDDEN bool process_start(void); /* false without address space */
HIDDEN bool process_has_started(void);
HIDDEN extern struct lock start_lock; /* held while process_start begins; outside every other lock */

/* Whether the library's constructor ran: from then on threads may be made. */
HIDDEN bool process_is_ready(void);
HIDDEN void process_set_ready(void);

/* Whether this is a child that runs in its parent's memory, as of vfork: a thread that it made would be its own, and
 * end with it, whatever locks it held. A system call. process_is_this: it is none, from here on. */
HIDDEN bool process_is_visitor(void);
HIDDEN void process_is_this(void);

/* The kernel's letter for a thread of this process; 0: it says nothing. Of one that has ended also its wait status. */
HIDDEN char thread_state(uint32_t thread, int *ended_with);

#endif
