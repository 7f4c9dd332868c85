/* limits: sets the memory limits that settings, the program and control groups ask for.             floor: process
 *
 * pages.h keeps and checks the limits. They come from the settings, from tslab_memory_limit, and for "auto" from the
 * control group. The process's start and the scavenger read the group; no malloc or free does. */
#ifndef TSLAB_PROCESS_LIMITS_H
#define TSLAB_PROCESS_LIMITS_H

#include "base/attr.h"

HIDDEN void limits_start(void); /* called after options_read */

HIDDEN int limits_set(uint64_t hard, uint64_t soft); /* see tslab_memory_limit */

/* The scavenger calls this at each of its ticks. Reads the group again about once a second. */
HIDDEN void limits_tick(uint64_t tick);
HIDDEN void limits_after_fork_child(void);

/* Called if malloc found no memory for a block of `size`, which takes a run of `bytes`, even after all free memory went
 * back. If the limit is the cause, this counts the failure and reports the first one. */
HIDDEN COLD void limits_note_failure(size_t size, size_t bytes);
HIDDEN uint64_t limits_refusals(void);

/* The paths that limits_start and limits_tick read; tests set others. */
HIDDEN extern const char *limits_self, *limits_root;

#endif
