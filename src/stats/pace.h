/* pace: how often the heap profile samples.                                                         floor: stats
 *
 * TSLAB_PROFILE, a call or a reader's request sets the interval. Where none of them does, the profile is automatic: it
 * begins by itself once the heap holds PACE_HELD bytes, with one sample in PACE_LEAST bytes, and leaves the chunks of
 * epochs alone. A sample costs up to five microseconds, so the interval doubles while the process takes more than
 * PACE_SAMPLES samples a second, and halves again when it takes few.
 *
 * Threads: any for tslab_profile_interval, the scavenger for the rest. pace_lock protects the state. */
#ifndef TSLAB_STATS_PACE_H
#define TSLAB_STATS_PACE_H

#include "heap/timing.h" /* TSLAB_TELEMETRY */

#define PACE_HELD    (64 * MiB)
#define PACE_LEAST   (8 * MiB)
#define PACE_SAMPLES 512

/* No thread takes profile_lock before it. */
HIDDEN extern struct lock pace_lock;

#if TSLAB_TELEMETRY
HIDDEN bool pace_is_automatic(void);

/* Returns the mean bytes between samples; 0: a pause, or no profile. */
HIDDEN size_t pace_interval_bytes(void);

/* Looks if the process's memory is limited (RLIMIT_DATA, RLIMIT_AS): then, as under a hard limit, no profile begins by
 * itself, because its tables would take a part of that. The scavenger calls this when it starts: a sandbox may forbid
 * the system call later. */
HIDDEN void pace_start(void);

/* Begins an automatic profile, or changes its interval, if it is time to. `now_ns` is on the coarse clock. */
HIDDEN void pace_look(uint64_t now_ns);
#else
INLINE void pace_start(void) {}
INLINE void pace_look(uint64_t now_ns) { (void)now_ns; }
#endif

#endif
