/* cgroup: what the control groups of this process (version 2) say of memory.                        floor: os
 *
 * A process is in a group, and so in all groups above it; each may have limits, and the tightest holds. Version 1 is
 * ignored. Each call opens some small files, reads and closes them, so no request should make it. */
#ifndef TSLAB_OS_CGROUP_H
#define TSLAB_OS_CGROUP_H

#include "base/attr.h"

struct cgroup_limit {
  uint64_t bytes;  /* UINT64_MAX: none */
  uint64_t in_use; /* by the group whose limit this is: what the kernel cannot drop, so no file's pages */
};

struct cgroup_memory {
  struct cgroup_limit max, high;
  unsigned stalled; /* hundredths of the last ten seconds' time in which a task of the group waited for memory, in
                     * parts of a hundred: the first number of memory.pressure times 100 */
};

/* `self` lists the process's groups, `root` is where they are mounted; tests have others. False where no group of
 * version 2 is named. */
#define CGROUP_SELF "/proc/self/cgroup"
#define CGROUP_ROOT "/sys/fs/cgroup"
HIDDEN bool cgroup_read(const char *self, const char *root, struct cgroup_memory *out);

#endif
