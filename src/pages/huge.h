/* huge: moves dense memory that stays to huge pages.                                                floor: pages
 *
 *   window of 2 MiB:   unknown -> dense (all its pages are resident) -> dense in the next round, too: on a huge page
 *
 * A heap of more than some tens of megabytes needs more entries than the processor's translation cache (TLB) has, so
 * most accesses wait for page tables. A huge page needs one entry for 2 MiB. The scavenger looks at some windows a
 * tick. It moves a window to a huge page if every page of it is resident and belongs to this process alone, in two
 * rounds that lie seconds apart. So no window becomes larger by this, and none that a fork child shares is copied.
 * os_purge divides a huge page before a part of it goes back. docs/decisions/0073.
 *
 * Threads: the scavenger's alone. */
#ifndef TSLAB_PAGES_HUGE_H
#define TSLAB_PAGES_HUGE_H

#include "pages/pages.h"

#define HUGE_LEAST_HEAP (32 * MiB) /* smaller heaps fit into the TLB well enough */

/* Opens the file that huge_look reads, for good, because a sandbox may forbid that later. `may_open`: the thread has a
 * table of descriptors of its own; otherwise huge_look does nothing. */
HIDDEN void huge_start(bool may_open);

/* Looks at the next windows and moves some. Called once a tick. `is_active`: threads took slow paths since the last
 * tick; otherwise it moves fewer. Returns true if the scavenger must come back at the next tick even if it has nothing
 * else to do. */
HIDDEN bool huge_look(bool is_active);

/* Returns the bytes that huge_look has moved to huge pages. Thread: any. */
HIDDEN size_t huge_moved_bytes(void);

#endif
