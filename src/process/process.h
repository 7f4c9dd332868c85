/* process: starts the process, and asks the kernel about it and its threads.                        floor: process */
#ifndef TSLAB_PROCESS_PROCESS_H
#define TSLAB_PROCESS_PROCESS_H

#include "os/lock.h"

HIDDEN bool process_start(void); /* false without address space */
HIDDEN bool process_has_started(void);
HIDDEN extern struct lock start_lock; /* held by process_start; outside every other lock */

/* Returns true once the library's constructor has run. From then on the library may make threads. */
HIDDEN bool process_is_ready(void);
HIDDEN void process_set_ready(void);

/* process_is_visitor returns true in a child that runs in its parent's memory, such as one of vfork. A thread that such
 * a child made would end with the child, whatever locks it held. Makes a system call. process_is_this notes that this
 * process owns its memory. */
HIDDEN bool process_is_visitor(void);
HIDDEN void process_is_this(void);

/* Returns true if libc knows, without asking the kernel, that the process's first thread has ended. */
HIDDEN bool process_first_has_ended(void);

/* Returns the kernel's letter for the state of a thread of this process; 0 if the kernel does not say. If the thread
 * has ended, *ended_with gets its wait status. */
HIDDEN char thread_state(uint32_t thread, int *ended_with);

/* Returns how many threads the process has, with the scavenger and a first thread that has ended; 0 if the kernel does
 * not say. */
HIDDEN unsigned process_threads(void);

#endif
