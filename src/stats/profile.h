/* profile: the rows of the heap profile, put together when they are read.                           floor: stats
 *
 * From any thread, no lock held. profile_lock is held for a bounded number of samples at a time, so statistics of one
 * look may be of moments some microseconds apart. */
#ifndef TSLAB_STATS_PROFILE_H
#define TSLAB_STATS_PROFILE_H

#include "heap/label.h"
#include "heap/profile.h"

#define TABLE_PROFILES_MOST 2 /* there is one; a table of one row at most would not be a list in JSON */
#define TABLE_SITES_MOST   256 /* those that hold most, or allocated most */
#define TABLE_HOLDERS_MOST 512

struct profile_row {
  uint64_t interval_bytes, samples, frees, lost, live_samples, sites, memory_bytes;
  uint64_t guards, guards_live, guards_refused, guard_bytes;
};

/* An address is at most 12 digits; a space follows each but the last, and a 0 that. */
struct site_row {
  uint64_t site, allocated_samples, allocated_blocks, allocated_bytes;
  uint64_t live_samples, live_blocks, live_bytes, error_bytes;
  char stack[STACK_MOST * 13 + 8];
};

enum holder_state { HOLDER_PLAIN, HOLDER_OPEN, HOLDER_CLOSING };
struct holder_row {
  uint64_t site, state, epoch;
  uint64_t live_samples, live_blocks, live_bytes, error_bytes, slabs, oldest_ns;
  char label[LABEL_BYTES];
};

HIDDEN size_t profile_collect(void *rows, size_t most);
HIDDEN size_t profile_collect_sites(void *rows, size_t most);
HIDDEN size_t profile_collect_holders(void *rows, size_t most);

/* One thread at a time puts rows together. Outside profile_lock. */
HIDDEN extern struct lock profile_reading;

#endif
