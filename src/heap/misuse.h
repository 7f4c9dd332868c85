/* misuse: reports calls with a wrong pointer.                                                       floor: heap */
#ifndef TSLAB_HEAP_MISUSE_H
#define TSLAB_HEAP_MISUSE_H

#include "slab/slab.h"

/* Each function writes one line about the mistake to standard error and aborts. Under TSLAB_ON_MISUSE=report those that
 * may return count the mistake and return instead. `call` is the function that the program called. */

/* p starts no block in use. */
HIDDEN COLD void misuse(const char *call, const void *p);

/* Reports a block of a batch of remote frees. The library checks such blocks only when the batch is complete. */
HIDDEN COLD void misuse_batch(void *p);

/* A list of free blocks links to `block`, which is readable but no intact free block: it is no block, is on the list
 * twice, or has changed. */
HIDDEN COLD void misuse_freed(void *block);

/* A list of free blocks of the class handed out more blocks than were put onto it. */
HIDDEN COLD void misuse_overdrawn(unsigned class);

/* The program wrote to a free block of a size class, at byte `at` first. */
HIDDEN COLD void misuse_written(const void *block, size_t at);

/* The caller gives another size for p than the block has. */
HIDDEN COLD void misuse_size(const char *call, const void *p, size_t size, const struct run *run);

/* p starts no block, but free took it for one and overwrote two words at p. */
HIDDEN COLD NORETURN void misuse_interior(const char *call, const void *p);

/* Ends a misuse whose line another module wrote: aborts, or counts it under TSLAB_ON_MISUSE=report. */
HIDDEN COLD void misuse_end(void);

HIDDEN uint64_t misuse_count(void);

#endif
