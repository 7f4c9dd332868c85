/* limits: the limits on memory that settings, the program and control groups set.                   floor: process
 *
 * pages.h keeps and checks them. Here is where they come from: the settings, tslab_memory_limit, and for "auto" the
 * control group, which is read at the start and by the scavenger, never by a request. */
#ifndef TSLAB_PROCESS_LIMITS_H
#define TSLAB_PROCESS_LIMITS_H

#include "base/attr.h"

HIDDEN void limits_start(void); /* after options_read */

HIDDEN int limits_set(uint64_t hard, uint64_t soft); /* see tslab_memory_limit */

/* By the scavenger, at each of its ticks: reads the group again about once a second. */
HIDDEN void limits_tick(uint64_t tick);
HIDDEN void limits_after_fork_child(void);

/* Malloc found no memory for a block of `size`, which takes a run of `bytes`, after everything that is free went back.
 * Where the limit is why, this counts it, and says so once. */
HIDDEN COLD void limits_note_failure(size_t size, size_t bytes);
HIDDEN uint64_t limits_refusals(void);

/* What limits_start and limits_tick read; tests have others. */
HIDDEN extern const char *limits_self, *limits_root;

#endif
