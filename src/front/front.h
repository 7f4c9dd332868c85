/* front: what stands between the callers and the heap: threads, start, fork, the scavenger.         floor: front */
#ifndef TSLAB_FRONT_FRONT_H
#define TSLAB_FRONT_FRONT_H

#include "epoch/scope.h"
#include "heap/fast.h"
#include "heap/refill.h"
#include "heap/misuse.h"
#include "heap/sample.h"
#include "slab/large.h"
#include <errno.h>

/* ---- the slow paths that the inlined fast ones leave to; malloc.c, free.c ---------------------------------------- */
HIDDEN void *front_malloc(size_t size);
HIDDEN void *front_malloc_direct(size_t size, struct heap *heap); /* current_heap; at most DIRECT_MAX */
HIDDEN void front_free(void *p, struct heap *heap); /* in a granule that is not owner to that, current_heap */
HIDDEN void front_free_otherwise(void *p);
HIDDEN void front_free_full(void *p);
HIDDEN COLD void front_free_interior(unsigned class);

/* `size` bytes on a multiple of `alignment` (a power of two). NULL and ENOMEM without memory. */
HIDDEN void *front_aligned(size_t alignment, size_t size);
HIDDEN void *front_calloc(size_t size);

INLINE void *no_memory(void) {
  errno = ENOMEM;
  return NULL;
}

/* The run of a block in use that starts at p, or NULL after telling the misuse of `call`. */
HIDDEN struct run *front_run_of_block(const char *call, void *p);
HIDDEN size_t front_usable_size(const struct run *run, const void *p); /* of that block */

/* ---- epochs; epochs.c -------------------------------------------------------------------------------------------- */

/* malloc in the epoch of that slot, or epoch 0 when it is closing: where realloc moves a block to. */
HIDDEN void *front_malloc_in(uint32_t index, size_t size);

/* ---- threads; thread.c ------------------------------------------------------------------------------------------- */

/* This thread's heap, made at its first call; the process is started by the first thread's. NULL without memory. A call
 * that had no heap before ends with front_end_call: a thread whose heap has ended gives the heap up again. */
HIDDEN struct heap *front_heap(void);
HIDDEN COLD void front_end_call(void);

/* The same for calls of epochs, which end with front_end_epoch_call: the heap of a thread whose heap has ended stays
 * until the thread is in no scope. */
HIDDEN COLD struct heap *front_heap_to_keep(void);
HIDDEN COLD void front_end_epoch_call(void);

/* For a free of another thread's block: the heap of this thread, which has no struct thread. Gives birth to a thread
 * that goes on freeing. Returns empty_heap without memory, for the first few frees, and after the thread's death. */
HIDDEN struct heap *front_heap_to_free(void);

/* ---- the birth and the end of a thread's heap; birth.c ----------------------------------------------------------- */

/* Makes the pthread key whose destructor is the thread's death. Again: nothing. After front_start. */
HIDDEN void birth_make_key(void (*thread_dies)(void *heap));
HIDDEN struct heap *birth_give_heap(void); /* to this thread, which has none; NULL without memory */
HIDDEN void birth_end_heap(struct heap *heap); /* of this thread */
HIDDEN void birth_drop_key(void); /* this thread's heap ends before the thread does */
/* Without a key a heap would stay for ever, and so would the scavenger: from now on it ends with the call. */
HIDDEN void birth_expect_no_end(void);

/* Returns true while this thread's birth is under way. A free may have caused it, under a lock of libc's. */
HIDDEN bool front_is_giving_birth(void);
HIDDEN bool front_heap_will_end(void); /* this thread has a heap, which a destructor will end */

/* ---- the process; process.c -------------------------------------------------------------------------------------- */

HIDDEN bool front_start(void); /* false without address space */
HIDDEN bool front_has_started(void);
HIDDEN extern struct lock start_lock; /* held while front_start begins; outside every other lock */

/* In the shared library only: returns true if the program's calls of malloc come to it. Not HIDDEN, for compilers take
 * a hidden function to be there. */
bool front_is_malloc(void) WEAK;

/* The same: returns true if the program ever had a thread beside its first. */
bool front_has_had_threads(void) WEAK;
HIDDEN bool front_has_had_two_heaps(void); /* at a time, the scavenger's not counted */

/* Whether the library's constructor ran: from then on threads may be made. */
HIDDEN bool front_is_ready(void);
HIDDEN void front_set_ready(void);

/* Whether this is a child that runs in its parent's memory, as of vfork: a thread that it made would be its own, and
 * end with it, whatever locks it held. A system call. process_is_this: it is none, from here on. */
HIDDEN bool process_is_visitor(void);
HIDDEN void process_is_this(void);

/* The kernel's letter for a thread of this process; 0: it says nothing. Of one that has ended also its wait status. */
HIDDEN char thread_state(uint32_t thread, int *ended_with);

/* ---- the scavenger; scavenger.c ---------------------------------------------------------------------------------- */

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
HIDDEN void front_keep_no_heap(void); /* by the scavenger's thread: what it allocates from now on ends with the call */

/* After the first, a child in which libc may hold the lock of its threads' stacks, of a thread that is not there, makes
 * no scavenger. It does after the second: libc's fork, whose handler calls it, released that lock. */
HIDDEN void scavenger_after_fork_child(void);
HIDDEN void scavenger_may_start(void);

/* ---- fork; fork.c ------------------------------------------------------------------------------------------------ */
HIDDEN void fork_start(void); /* once, by the library's constructor: children are right from then on */

/* Whatever any thread, epoch or size keeps that is free, this thread's lists included, becomes free pages, for a call
 * that found none. These stay as they are: to give them back to the system takes them from other calls meanwhile, and
 * no limit that refuses memory counts what is resident. `wanted` is how many bytes it was, SIZE_MAX where a budget may
 * have refused them. */
HIDDEN void front_reclaim(size_t wanted);

/* Gives back everything that is free, this thread's lists included. Returns bytes. */
HIDDEN size_t front_purge(void);

/* ---- statistics; stats.c ----------------------------------------------------------------------------------------- */
HIDDEN void stats_write_file(const char *path);

#endif
