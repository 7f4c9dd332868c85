/* reserve: granules of ended epochs, kept resident for the next ones.                               floor: slab
 *
 * A thread that takes one causes no page fault. The reserve has two storeys. What lies here is ready for every thread,
 * last in, first out. What a thread keeps to itself between two epochs (heap/chunk_cache.h) lies there, and is claimed
 * here. The setting TSLAB_RESERVE, in granules, is `most`:
 *
 *   a thread claims at most `most`       so threads do not take it from each other
 *   count <= most                        what lies here
 *   count + claims <= most * threads     threads: those that claim any, at least 1
 *
 * A claim is never refused: the oldest granules that lie here make way. Nothing lies here for longer than a second
 * without being used. Also here: giving runs back to the kernel, many neighbours in one call.
 *
 * Threads: everything under reserve_lock, which is taken last but pages_lock. */
#ifndef TSLAB_SLAB_RESERVE_H
#define TSLAB_SLAB_RESERVE_H

#include "pages/pages.h"

HIDDEN extern struct lock reserve_lock;

/* Returns one granule, contents arbitrary, as pages_alloc leaves it; NULL when none is ready. */
HIDDEN struct run *reserve_take(enum run_kind kind);

/* Takes a run of one granule that leads to no owner. Returns false, and does nothing, when the run is longer or there
 * is no room. */
HIDDEN bool reserve_put(struct run *run);

/* Granules that a thread may keep to itself. */
HIDDEN size_t reserve_most(void);

/* Changes what a thread claims, at most reserve_most(), from `before` to `now`. Returns the runs that make way, linked
 * through next, for returning_keep_all; NULL when none does. */
HIDDEN struct run *reserve_claim(size_t before, size_t now);

/* See pages_freeze. */
HIDDEN void reserve_freeze(void);

/* Gives back what was put in over a second before `tick`, which the scavenger counts; or everything. Returns bytes. */
HIDDEN size_t reserve_trim(uint64_t tick);
HIDDEN size_t reserve_empty(void);

/* Bytes that lie here or are claimed: an upper bound of what the reserve holds, which reads one word. */
HIDDEN size_t reserve_bytes(void);
HIDDEN size_t reserve_ready_bytes(void); /* that lie here */

/* Collects runs to give back: neighbours become one system call. Zeroed before the first, flushed after the last. */
struct returning {
  struct run *first;
  size_t granules;
  size_t split;      /* a granule of which */
  unsigned quarters; /* these are collected, one bit each */
  size_t recycled, returned; /* bytes, so far */
};

/* `run`, in use and without owners, goes to the reserve while there is room, else to the kernel. */
HIDDEN void returning_add(struct returning *r, struct run *run);
HIDDEN void returning_keep(struct returning *r, struct run *run); /* to the kernel in any case */
HIDDEN void returning_keep_all(struct returning *r, struct run *first); /* linked through next */
HIDDEN void returning_flush(struct returning *r);

#endif
