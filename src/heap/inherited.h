/* inherited: in a fork child, the lists of threads that exist only in its parent.                   floor: heap
 *
 *   fork -> store->inherited has a bit for each such list -> a thread takes the heap and checks the list
 *                                                       -> the scavenger folds the heap: the list is lost
 *
 * Such a list may be half written, and a check reads every block. Most children end or call exec before that would pay,
 * so only the next thread to take the heap does it. heap->count does not count the blocks until then.
 *
 * Threads: the one that forked, then the one that takes the heap or folds it. */
#ifndef TSLAB_HEAP_INHERITED_H
#define TSLAB_HEAP_INHERITED_H

#include "heap/heap.h"

/* Returns what is whole of the class's list, and of its detached one. */
HIDDEN struct chain heap_recover_list(const struct heap *heap, unsigned class);

HIDDEN void heap_leave_list(struct heap *heap, unsigned class, void *list); /* to the heap's next thread */
HIDDEN void heap_inherit_lists(struct heap *heap); /* makes what is whole of them lists of the heap's new thread */
HIDDEN void heap_disown_lists(struct heap *heap);  /* gives them up */

/* The losses of a fork child: blocks of classes that are neither live nor on a list, and, in one that froze, the bytes
 * of all memory below the frontier at that time. A thread that inherits lists lowers the first two. */
struct leaked {
  _Atomic uint64_t blocks, bytes;
  uint64_t frozen;
};
extern HIDDEN struct leaked leaked;

#endif
