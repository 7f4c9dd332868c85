/* publish: writes the statistics to shared memory, for readers outside the process.                 floor: stats
 *
 * Only the scavenger publishes: at every tick while it is busy, and once before it falls asleep. Slow paths wake it
 * when the last publication is older than a second. Slow paths of malloc start it once the process is a second old. So
 * the statistics are at most 1.25 s older than the last slow path that called scavenger_notice, plus the time that the
 * scavenger waits for a processor. Without such a slow path only the counts of fast paths change. A process that ends
 * within its first second and frees little has no segment and no scavenger, and makes no system call for them.
 *
 * A segment takes about 120 KiB of shared memory on pages of 4 KiB. With many threads, labels, epochs and samples it
 * takes up to 0.4 MiB, with a heap profile up to 0.7 MiB. The file has only the pages that were written, and the
 * scavenger asks for each by a call that fails if the file system is full. While the scavenger sleeps, the process does
 * not hold these pages.
 *
 * If the scavenger cannot make the file, the process goes on silently without it, and tries again after a minute. */
#ifndef TSLAB_STATS_PUBLISH_H
#define TSLAB_STATS_PUBLISH_H

#include "heap/timing.h" /* TSLAB_TELEMETRY */

#if TSLAB_TELEMETRY

/* Returns true under TSLAB_PUBLISH, except in a set-user-id program: the user who started it must not read its
 * statistics or own its files. */
HIDDEN bool publish_is_wanted(void);

/* Publishes. Thread: the scavenger, without a lock. Returns false if there is no segment and the scavenger cannot make
 * one. */
HIDDEN bool publish_now(void);
HIDDEN void publish_rest(void); /* called before the scavenger sleeps */

/* publish_end removes the file, unless it is another process's: the process ends, or its last heap does. After
 * publish_at_exit the process makes no new file. */
HIDDEN void publish_end(void);
HIDDEN void publish_at_exit(void);

/* A child never has its parent's segment. It inherits no descriptor of ours either, because none is open between these
 * two calls. publish_before_fork returns false if it cannot take its lock in LOCK_PATIENCE_MS; the parent then does not
 * call publish_after_fork_parent. */
HIDDEN bool publish_before_fork(void);
HIDDEN void publish_after_fork_parent(void);
HIDDEN void publish_after_fork_child(void);

#else

INLINE bool publish_is_wanted(void) { return false; }
INLINE bool publish_now(void) { return false; }
INLINE void publish_rest(void) {}
INLINE void publish_end(void) {}
INLINE void publish_at_exit(void) {}
INLINE bool publish_before_fork(void) { return true; }
INLINE void publish_after_fork_parent(void) {}
INLINE void publish_after_fork_child(void) {}

#endif

#endif
