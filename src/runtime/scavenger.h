/* scavenger: a thread that returns memory, publishes, and makes memory resident.                    floor: runtime */
#ifndef TSLAB_RUNTIME_SCAVENGER_H
#define TSLAB_RUNTIME_SCAVENGER_H

#include "heap/heap.h"
#include <pthread.h>

/* Called at the end of a slow path, without a lock. Starts or wakes the scavenger if enough memory is free. */
HIDDEN void scavenger_notice(const struct heap *heap);
HIDDEN void scavenger_notice_malloc(const struct heap *heap); /* may also start it to publish */
HIDDEN void scavenger_notice_thread(void); /* called before the program makes a thread, without a lock of libc's */
HIDDEN bool scavenger_is_made_here(void); /* true while this thread makes the scavenger's thread */
HIDDEN void scavenger_notice_start(void); /* for a heap that grew before the library could make a thread */
HIDDEN void scavenger_notice_death(const struct heap *heap); /* counts the lists as free, too */

/* The functions of libc that make a thread and end it. The shared library, which replaces pthread_create, sets them
 * before the first thread can be made; without that the functions are those of the names. */
struct thread_calls {
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  int (*join)(pthread_t, void **);
  int (*detach)(pthread_t);
};
HIDDEN void scavenger_use(const struct thread_calls *calls);

/* Called when the last thread with a heap ends. Waits until the scavenger has ended. After pthread_exit in its main
 * thread a process ends with its last thread, which must not be the scavenger. */
HIDDEN void scavenger_stop(void);
HIDDEN bool scavenger_is_there(void);

/* Lets the scavenger end by itself. If `waits`, this waits until it has, and the caller holds no lock of ours. Returns
 * false if there is none, or if this does not wait. The caller may be a signal handler that interrupted a holder of one
 * of libc's locks, which the start and the end of a thread and pthread_join take. So this waits at most a tenth of a
 * second for a scavenger that is starting, and for the last part of its end. */
HIDDEN bool scavenger_dismiss(bool waits);

/* In a fork child a thread that does not exist there may hold libc's lock of thread stacks. After
 * scavenger_after_fork_child such a child makes no scavenger. libc's fork releases that lock, and its handler then
 * calls scavenger_may_start. */
HIDDEN void scavenger_after_fork_child(void);
HIDDEN void scavenger_may_start(void);

/* From now on this process, and its fork children, make no scavenger. One that is there stays. Signal handlers may call
 * this. */
HIDDEN void scavenger_forbid(void);

/* For a call that found no memory: makes free runs of all free memory that threads, epochs and size classes keep, with
 * this thread's lists. It purges nothing: a purge would take the memory from other calls meanwhile, and no limit that
 * refuses memory counts resident pages. `wanted` is the bytes of the call, SIZE_MAX if a budget may have refused them.
 * Returns false, and has done nothing, if too little came free since the last time. */
HIDDEN bool scavenger_reclaim(size_t wanted);

/* Gives all free memory back to the kernel, with this thread's lists. Returns the bytes. */
HIDDEN size_t scavenger_purge(void);

#endif
