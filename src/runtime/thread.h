/* thread: a thread's heap, from its first call to its last.                                         floor: runtime */
#ifndef TSLAB_RUNTIME_THREAD_H
#define TSLAB_RUNTIME_THREAD_H

#include "epoch/scope.h"
#include "heap/fast.h"

/* This thread's heap, made at its first call; the process is started by the first thread's. NULL without memory. A call
 * that had no heap before ends with thread_end_call: a thread whose heap has ended gives the heap up again. */
HIDDEN struct heap *thread_own_heap(void);
HIDDEN COLD void thread_end_call(void);

/* The same for calls of epochs, which end with thread_end_epoch_call: the heap of a thread whose heap has ended stays
 * until the thread is in no scope. */
HIDDEN COLD struct heap *thread_heap_to_keep(void);
HIDDEN COLD void thread_end_epoch_call(void);

/* For a free of another thread's block: the heap of this thread, which has no struct thread. Gives birth to a thread
 * that goes on freeing. Returns empty_heap without memory, for the first few frees, and after the thread's death. */
HIDDEN struct heap *thread_heap_to_free(void);

#endif
