/* scavenger: a thread that returns memory, publishes, and makes memory resident.                    floor: runtime */
#ifndef TSLAB_RUNTIME_SCAVENGER_H
#define TSLAB_RUNTIME_SCAVENGER_H

#include "heap/heap.h"

/* At the end of a slow path, no lock held: starts or wakes the scavenger when enough lies free. */
HIDDEN void scavenger_notice(const struct heap *heap);
HIDDEN void scavenger_notice_malloc(const struct heap *heap); /* may also start it to publish */
HIDDEN void scavenger_notice_thread(void); /* another thread is about to be made, and no lock of libc's held */
HIDDEN bool scavenger_is_made_here(void); /* this thread makes the scavenger's just now, not one of the program's */
HIDDEN void scavenger_notice_start(void); /* a heap that grew before threads could be made may never call again */
HIDDEN void scavenger_notice_death(const struct heap *heap); /* the lists, too, lie free then */

/* When the last thread that allocated ends: waits until the scavenger is gone, for a process whose main thread left by
 * pthread_exit ends with its last thread, and the scavenger must not be it. */
HIDDEN void scavenger_stop(void);
HIDDEN bool scavenger_is_there(void);

/* After the first, a child in which libc may hold the lock of its threads' stacks, of a thread that is not there, makes
 * no scavenger. It does after the second: libc's fork, whose handler calls it, released that lock. */
HIDDEN void scavenger_after_fork_child(void);
HIDDEN void scavenger_may_start(void);

/* Whatever any thread, epoch or size keeps that is free, this thread's lists included, becomes free pages, for a call
 * that found none. These stay as they are: to give them back to the system takes them from other calls meanwhile, and
 * no limit that refuses memory counts what is resident. `wanted` is how many bytes it was, SIZE_MAX where a budget may
 * have refused them. Returns false if too little came free since the last time, so that nothing was done. */
HIDDEN bool scavenger_reclaim(size_t wanted);

/* Gives back everything that is free, this thread's lists included. Returns bytes. */
HIDDEN size_t scavenger_purge(void);

#endif
