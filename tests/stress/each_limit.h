/* each_limit.h: a test under a limit of addresses, and under one of data, each in a process of its own. */
#ifndef TSLAB_TESTS_EACH_LIMIT_H
#define TSLAB_TESTS_EACH_LIMIT_H

#include "memory.h"

#include <sys/resource.h>
#include <sys/wait.h>

/* Calls `under` with RLIMIT_AS, then with RLIMIT_DATA. Returns what `main` returns: 0, or SKIPPED if `under` did. */
static inline int under_each_limit(int (*under)(int resource)) {
  const int resources[] = {RLIMIT_AS, RLIMIT_DATA};
  for (int i = 0; i < 2; i++) {
    int status;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(under(resources[i]));
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) return SKIPPED;
    CHECK_COUNT(status, ==, 0);
  }
  return 0;
}

#endif
