/* reserve: granules that an epoch gave up, ready for the next one.                                  floor: slab
 *
 * They are resident, so whoever takes one faults no page. Last in, first out; at most TSLAB_RESERVE bytes in all, and
 * none longer than a second unused. Also here: giving runs back to the kernel, many neighbours in one call.
 *
 * Threads: everything under reserve_lock, which is taken last but pages_lock. */
#ifndef TSLAB_SLAB_RESERVE_H
#define TSLAB_SLAB_RESERVE_H

#include "pages/pages.h"

HIDDEN extern struct lock reserve_lock;

/* One granule, contents arbitrary, as pages_alloc leaves it; NULL when the reserve is empty. */
HIDDEN struct run *reserve_take(enum run_kind kind);

/* Takes a run of one granule that leads to no home; false when it is longer or the reserve full. */
HIDDEN bool reserve_put(struct run *run);

/* Granules that threads keep to themselves between two epochs count against the reserve's bound too. */
HIDDEN void reserve_lend(int granules);
/* The same, within the bound: what lies ready makes room. False, and nothing happened, where it does not suffice. */
HIDDEN bool reserve_lend_within(int granules);

/* See pages_freeze. */
HIDDEN void reserve_freeze(void);

/* Gives back what was put in over a second before `tick`, which the scavenger counts; or everything. Returns bytes. */
HIDDEN size_t reserve_trim(uint64_t tick);
HIDDEN size_t reserve_empty(void);
HIDDEN size_t reserve_bytes(void); /* no lock: a hint */

/* Collects runs to give back: neighbours become one system call. Zeroed before the first, flushed after the last. */
struct returning {
  struct run *first;
  size_t granules;
  size_t recycled, returned; /* bytes, so far */
};

/* `run`, in use and without homes, goes to the reserve while there is room, else to the kernel. */
HIDDEN void returning_add(struct returning *r, struct run *run);
HIDDEN void returning_keep(struct returning *r, struct run *run); /* to the kernel in any case */
HIDDEN void returning_flush(struct returning *r);

#endif
