/* process: the process's start, and what the kernel says of it and of its threads.                  floor: process */
#ifndef TSLAB_PROCESS_PROCESS_H
#define TSLAB_PROCESS_PROCESS_H

#include "os/lock.h"

HIDDEN bool process_start(void); /* false without address space */
HIDDEN bool process_has_started(void);
HIDDEN extern struct lock start_lock; /* held while process_start begins; outside every other lock */

/* Returns true once the library's constructor ran: from then on threads may be made. */
HIDDEN bool process_is_ready(void);
HIDDEN void process_set_ready(void);

/* Returns true in a child that runs in its parent's memory, as of vfork. A thread that such a child made would end with
 * it, whatever locks it held. Costs a system call. process_is_this says that this process is no such child. */
HIDDEN bool process_is_visitor(void);
HIDDEN void process_is_this(void);

/* Returns true if libc knows, without asking the kernel, that the process's first thread has ended. */
HIDDEN bool process_first_has_ended(void);

/* The kernel's letter for a thread of this process; 0: it says nothing. Of one that has ended also its wait status. */
HIDDEN char thread_state(uint32_t thread, int *ended_with);

/* How many threads the process has, the scavenger and a first one that has ended among them; 0: the kernel says
 * nothing. */
HIDDEN unsigned process_threads(void);

#endif
