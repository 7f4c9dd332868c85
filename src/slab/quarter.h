/* quarter: granules that are lent to epochs in quarters of 16 KiB.                                  floor: slab
 *
 *   run, RUN_SPLIT:  which quarters are free      descriptors of the quarters:  [ chunk | free | chunk | chunk ]
 *
 * A thread that has many epochs open at once fills chunks of a quarter (heap/bump.c), for each of them may end with one
 * that is nearly empty. The quarters of a granule belong to different epochs, as they need them; each is purged by
 * itself. What is free here is not resident, unless the kernel refused to purge it. A granule whose quarters are all
 * free is an ordinary run again.
 *
 * Invariant: a split granule hangs in the list exactly if some of its quarters are free, and never all of them.
 * Threads:   everything under quarter_lock, which is taken last. A quarter in use belongs to who took it. */
#ifndef TSLAB_SLAB_QUARTER_H
#define TSLAB_SLAB_QUARTER_H

#include "pages/pages.h"

HIDDEN extern struct lock quarter_lock;

/* Returns true if granules may be split: not where a page is larger than a quarter, nor in trap mode, which forbids
 * whole runs. */
HIDDEN bool quarters_are_allowed(void);

/* Splits a run of one granule that the caller has and whose chunk bits are writable. Its four quarters are the caller's
 * from then on: RUN_RESERVED, of no epoch. Returns the first; NULL without memory: then the run is as it was. */
HIDDEN struct run *quarter_split(struct run *run);

/* Returns a quarter in use that was free here, RUN_RESERVED, of no epoch; NULL when there is none. */
HIDDEN struct run *quarter_take(void);

/* Takes back quarters of one granule, one bit each; of these `dirty` may be resident. */
HIDDEN void quarters_give(size_t granule, unsigned quarters, unsigned dirty);

/* See pages_freeze. */
HIDDEN void quarters_freeze(void);

HIDDEN void quarters_check(void);

#endif
