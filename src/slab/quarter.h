/* quarter: lends granules to epochs in quarters of 16 KiB.                                          floor: slab
 *
 *   run, RUN_SPLIT:  which quarters are free      descriptors of the quarters:  [ chunk | free | chunk | chunk ]
 *
 * A thread that has many epochs open at once fills chunks of a quarter (heap/bump.c), because each epoch may end with a
 * chunk that is nearly empty. The quarters of a granule may belong to different epochs, and each is purged by itself. A
 * free quarter here is not resident, unless the kernel refused to purge it. A granule whose quarters are all free
 * becomes an ordinary run again.
 *
 * Invariant: a split granule is in the list if and only if some of its quarters, but not all, are free.
 * Threads:   quarter_lock protects everything; a thread that holds it takes no other lock. A quarter in use belongs to
 *            the thread that took it. */
#ifndef TSLAB_SLAB_QUARTER_H
#define TSLAB_SLAB_QUARTER_H

#include "pages/pages.h"

HIDDEN extern struct lock quarter_lock;

/* Returns true if granules may be split. They may not if a page is larger than a quarter, nor in trap mode, which
 * forbids whole runs. */
HIDDEN bool quarters_are_allowed(void);

/* Splits a run of one granule that the caller owns and whose chunk bits are writable. The caller then owns its four
 * quarters: RUN_RESERVED, of no epoch. Returns the first. Without memory it returns NULL and leaves the run as it
 * was. */
HIDDEN struct run *quarter_split(struct run *run);

/* Takes a free quarter, RUN_RESERVED, of no epoch. Returns NULL if there is none. */
HIDDEN struct run *quarter_take(void);

/* Takes back quarters of one granule, one bit each. Those in `dirty` may be resident. */
HIDDEN void quarters_give(size_t granule, unsigned quarters, unsigned dirty);

/* See pages_freeze. */
HIDDEN void quarters_freeze(void);

HIDDEN void quarters_check(void);

#endif
