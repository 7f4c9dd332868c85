/* reserve: keeps granules of ended epochs resident for the next ones.                               floor: slab
 *
 * A thread that takes one causes no page fault. The granules in this module's list are ready for every thread, last in,
 * first out. A thread also keeps granules to itself between two epochs (heap/chunk_cache.h), and claims those here. The
 * setting TSLAB_RESERVE, in granules, is `most`:
 *
 *   a thread claims at most `most`       so threads do not take it from each other
 *   count <= most                        what lies here
 *   count + claims <= most * threads     threads: those that claim any, at least 1
 *
 * A thread in more than 256 epochs may claim a 256th of `most` for each of them. The part of its claim beyond `most`
 * leaves the list as it is. A claim is never refused: the oldest granules in the list make way. No granule stays in the
 * list unused for longer than a second. This module also gives runs back to the kernel, many neighbours in one call.
 *
 * Threads: reserve_lock protects everything; a thread that holds it takes only pages_lock. */
#ifndef TSLAB_SLAB_RESERVE_H
#define TSLAB_SLAB_RESERVE_H

#include "pages/pages.h"

HIDDEN extern struct lock reserve_lock;

/* Returns one granule with arbitrary contents, as pages_alloc leaves it, or NULL if none is ready. */
HIDDEN struct run *reserve_take(enum run_kind kind);

/* Takes a run of one granule that has no owner in the pagemap. Returns false, and does nothing, if the run is longer or
 * there is no room. */
HIDDEN bool reserve_put(struct run *run);
HIDDEN bool reserve_has_room(void); /* for one more, now */

/* Returns how many granules a thread may keep to itself. */
HIDDEN size_t reserve_most(void);

/* Changes a thread's claim from `before` to `now`. Returns the runs that make way, linked
 * through next, for returning_keep_all, or NULL if none does. */
HIDDEN struct run *reserve_claim(size_t before, size_t now);

/* See pages_freeze. */
HIDDEN void reserve_freeze(void);

/* reserve_trim gives back the granules that came in over a second before `tick`, which the scavenger counts;
 * reserve_empty gives back all. Both return the bytes. */
HIDDEN size_t reserve_trim(uint64_t tick);
HIDDEN size_t reserve_empty(void);

/* Returns the bytes in the list plus those that threads claim: an upper bound of what the reserve holds. Reads one
 * word. */
HIDDEN size_t reserve_bytes(void);
HIDDEN size_t reserve_ready_bytes(void); /* in the list */

/* Collects runs to give back, so that neighbours take one system call. The caller zeroes it before the first run and
 * flushes it after the last. */
struct returning {
  struct run *first;
  size_t granules;
  size_t split;      /* a granule some of whose quarters are collected */
  unsigned quarters; /* these, one bit each */
  size_t recycled, returned; /* bytes, so far */
};

/* Gives `run`, which is in use and has no owner, to the reserve while there is room, otherwise to the kernel. */
HIDDEN void returning_add(struct returning *r, struct run *run);
HIDDEN void returning_keep(struct returning *r, struct run *run); /* gives it to the kernel in any case */
HIDDEN void returning_keep_all(struct returning *r, struct run *first); /* runs linked through next */
HIDDEN void returning_flush(struct returning *r);

#endif
