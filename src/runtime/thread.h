/* thread: finds or makes a thread's heap.                                                           floor: runtime */
#ifndef TSLAB_RUNTIME_THREAD_H
#define TSLAB_RUNTIME_THREAD_H

#include "epoch/scope.h"
#include "heap/fast.h"

/* Returns this thread's heap, or NULL without memory. The first call of a thread makes its heap, and that of the first
 * thread starts the process. A call that had no heap before calls thread_end_call last, because a thread whose heap has
 * ended keeps a heap only for the call. */
HIDDEN struct heap *thread_own_heap(void);
HIDDEN COLD void thread_end_call(void);

/* Returns this thread's heap for a call of epochs, which calls thread_end_epoch_call last. If the thread's heap has
 * ended, this one stays until the thread is in no scope. */
HIDDEN COLD struct heap *thread_heap_to_keep(void);
HIDDEN COLD void thread_end_epoch_call(void);

/* Returns a heap for a free of another thread's block by this thread, which has no struct thread. It gives a heap to a
 * thread that goes on freeing. It returns empty_heap for the first few frees, without memory, and after the thread's
 * heap has ended. */
HIDDEN struct heap *thread_heap_to_free(void);

#endif
