/* fork: repairs, in a fork child, the heaps of threads that do not exist there.                     floor: heap
 *
 * Threads: the child's one thread. */
#ifndef TSLAB_HEAP_FORK_H
#define TSLAB_HEAP_FORK_H

#include "heap/heap.h"

/* heap_retire_others: all locks are free. The heaps of threads that do not exist in the child may serve new
 * threads, which inherit what is whole of their lists. Slabs that such a thread was about to relist are relisted.
 * heap_freeze: the child may have copied a heap half written. These heaps never serve a thread again, and no heap leads
 * to a slab any more. `knows_its_thread` is false if the calling thread may not be the one that forked; then all lists
 * stay. */
HIDDEN void heap_retire_others(void);
HIDDEN void heap_freeze(bool knows_its_thread);

/* Counts the child's losses into `leaked`. */
HIDDEN void heap_count_leaked(void);

#endif
