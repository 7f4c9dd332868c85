/* cgroup: reads the memory limits of this process's control groups (version 2).                     floor: os
 *
 * A process is in a group, and so in all groups above it. Each may have limits, and the tightest one holds. Version 1
 * is ignored. A call opens, reads and closes some small files, so no malloc or free makes one. */
#ifndef TSLAB_OS_CGROUP_H
#define TSLAB_OS_CGROUP_H

#include "base/attr.h"

struct cgroup_limit {
  uint64_t bytes;  /* UINT64_MAX: none */
  uint64_t in_use; /* by the group that has this limit: memory that the kernel cannot drop, so not the pages of files */
};

struct cgroup_memory {
  struct cgroup_limit max, high;
  unsigned stalled; /* the share of the last ten seconds in which a task of the group waited for memory, in hundredths
                     * of a percent: the first number of memory.pressure times 100 */
};

/* `self` lists the process's groups, and `root` is where they are mounted; tests pass other paths. Returns false if
 * `self` names no group of version 2. */
#define CGROUP_SELF "/proc/self/cgroup"
#define CGROUP_ROOT "/sys/fs/cgroup"
HIDDEN bool cgroup_read(const char *self, const char *root, struct cgroup_memory *out);

#endif
