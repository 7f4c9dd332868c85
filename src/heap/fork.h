/* fork: what a fork child does with the heaps of threads that it does not have.                     floor: heap
 *
 * Threads: The child's one thread. */
#ifndef TSLAB_HEAP_FORK_H
#define TSLAB_HEAP_FORK_H

#include "heap/heap.h"

/* In a fork child, by its one thread, every lock free: the heaps of threads that it does not have give up their lists,
 * and serve the next; slabs whose folding thread is not there are folded. Or, in a child that may have copied a heap
 * half written, they serve nobody, and no heap leads to a slab any more; when the thread may be another than the one
 * that forked, `knows_its_thread` is false, and the lists of all stay. */
HIDDEN void heap_retire_others(void);
HIDDEN void heap_freeze(bool knows_its_thread);

/* Counts into `leaked` what the child lost. */
HIDDEN void heap_count_leaked(void);

/* Lost by a fork child: blocks of classes that are neither live nor on a list, and, in one that froze, bytes of all
 * memory that lay below the frontier then. */
struct leaked {
  uint64_t blocks, bytes, frozen;
};
extern HIDDEN struct leaked leaked;

#endif
