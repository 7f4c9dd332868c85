/* publish: puts the statistics into shared memory, for readers outside the process.                 floor: stats
 *
 * The scavenger does all of it, every tick while it is busy, and so once before it falls asleep. Slow paths wake it
 * when the last publication is older than a second; those of malloc have it made when the process has lived for one.
 * So the statistics are never more than 1.25 s (and what the machine keeps the scavenger waiting) older than the last
 * visit of a slow path that came by scavenger_notice; in a process that came by none since, nothing changed but what
 * fast paths count.
 * A process that ends within its first second and frees little has no segment, no scavenger and makes no call for one.
 *
 * What it costs: about 120 KiB of shared memory on pages of 4 KiB, more with many threads, labels, epochs and samples,
 * 0.4 MiB at most, and 0.7 with a heap profile. Only pages that were written are had, and they are had by a call that
 * fails where the file system is full. While the scavenger sleeps they do not count as the process's.
 *
 * Where no file can be made the process goes on without, silently, and tries again after a minute. */
#ifndef TSLAB_STATS_PUBLISH_H
#define TSLAB_STATS_PUBLISH_H

#include "heap/timing.h" /* TSLAB_TELEMETRY */

#if TSLAB_TELEMETRY

/* TSLAB_PUBLISH, and no set-user-id program: its statistics are not for who started it, nor its files. */
HIDDEN bool publish_is_wanted(void);

/* Publishes, by the scavenger, no lock held. Returns false if there is no segment and none can be made. */
HIDDEN bool publish_now(void);
HIDDEN void publish_rest(void); /* the scavenger falls asleep */

/* The process ends, or nobody in it allocates any more: its file goes, unless it is another process's. */
HIDDEN void publish_end(void);
HIDDEN void publish_at_exit(void); /* and none is made from now on */

/* A child never has its parent's segment, and inherits no descriptor of ours: none is open between these two. The first
 * returns false where its lock cannot be had in LOCK_PATIENCE_MS; publish_after_fork(false) does not follow then. */
HIDDEN bool publish_before_fork(void);
HIDDEN void publish_after_fork(bool child);

#else

INLINE bool publish_is_wanted(void) { return false; }
INLINE bool publish_now(void) { return false; }
INLINE void publish_rest(void) {}
INLINE void publish_end(void) {}
INLINE void publish_at_exit(void) {}
INLINE bool publish_before_fork(void) { return true; }
INLINE void publish_after_fork(bool child) { (void)child; }

#endif

#endif
