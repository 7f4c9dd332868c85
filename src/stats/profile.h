/* profile: adds the rows of the heap profile up when someone reads them.                            floor: stats
 *
 * Thread: any, without a lock. A reader holds profile_lock for a bounded number of samples at a time, so the numbers of
 * one reading may come from moments some microseconds apart. */
#ifndef TSLAB_STATS_PROFILE_H
#define TSLAB_STATS_PROFILE_H

#include "heap/label.h"
#include "heap/profile.h"

#define TABLE_PROFILES_MOST 2 /* there is one row; a table of at most one row would be no list in JSON */
#define TABLE_SITES_MOST   256 /* the sites that hold most, or allocated most */
#define TABLE_HOLDERS_MOST 512
#define TABLE_LIFESPANS_MOST 256 /* those that held most at a time */

struct profile_row {
  uint64_t interval_bytes, samples, frees, lost, stackless, live_samples, sites, memory_bytes;
  uint64_t guards, guards_live, guards_refused, guard_bytes;
  uint64_t began_ns, automatic;
};

/* An address has at most 12 digits. A space follows each address but the last, and a 0 follows the last. */
struct site_row {
  uint64_t site, allocated_samples, allocated_blocks, allocated_bytes, allocated_error_bytes;
  uint64_t live_samples, live_blocks, live_bytes, error_bytes;
  char stack[STACK_MOST * 13 + 8];
};

enum holder_state { HOLDER_PLAIN, HOLDER_OPEN, HOLDER_CLOSING };
struct holder_row {
  uint64_t site, state, epoch;
  uint64_t live_samples, live_blocks, live_bytes, error_bytes, slabs, oldest_ns;
  char label[LABEL_BYTES];
};

struct lifespan_row {
  uint64_t site, object_size, live_samples, live_bytes, peak_bytes, freed_samples, freed_bytes, ebbs;
  uint64_t age_half_ns, age_most_ns;
};

struct spread_row {
  uint64_t object_size, slabs, resident_bytes, used_bytes;
};

HIDDEN size_t profile_collect(void *rows, size_t most);
HIDDEN size_t profile_collect_sites(void *rows, size_t most);
HIDDEN size_t profile_collect_holders(void *rows, size_t most);

/* stats/lifespans.c */
HIDDEN size_t profile_collect_lifespans(void *rows, size_t most);
HIDDEN size_t profile_collect_spreads(void *rows, size_t most);

/* Held by the one thread that adds rows up. A thread takes it before profile_lock. */
HIDDEN extern struct lock profile_reading;

#endif
