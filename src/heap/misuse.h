/* misuse: calls with a pointer that no call may have, named.                                        floor: heap */
#ifndef TSLAB_HEAP_MISUSE_H
#define TSLAB_HEAP_MISUSE_H

#include "slab/slab.h"

/* Each says on standard error what is wrong, in one line, and aborts; those that may return do so under
 * TSLAB_ON_MISUSE=report, after counting. `call` is the function that the program called. */

/* p starts no block in use. */
HIDDEN COLD void misuse(const char *call, const void *p);

/* The same for a block of a batch of remote frees, which are looked at when the batch is complete. */
HIDDEN COLD void misuse_batch(void *p);

/* A list of free blocks links to `block`, which may be read, and it is not a free block as it was left: it is no block
 * at all, is on the list twice, or has changed. */
HIDDEN COLD void misuse_freed(void *block);

/* A free block of a size class was written to, at that byte first. */
HIDDEN COLD void misuse_written(const void *block, size_t at);

/* A block in use of another size than the caller says; class == CLASSES for a large one. */
HIDDEN COLD void misuse_size(const char *call, const void *p, size_t size, const struct run *run);

/* p starts no block, but was taken for one, and two words at p are overwritten. */
HIDDEN COLD NORETURN void misuse_interior(const char *call, const void *p);

/* What follows a line that another module wrote: aborts, or counts it under TSLAB_ON_MISUSE=report. */
HIDDEN COLD void misuse_end(void);

HIDDEN uint64_t misuse_count(void);

#endif
