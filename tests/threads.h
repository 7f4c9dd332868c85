/* threads.h: how many threads the process has, those of libraries too. */
#ifndef TSLAB_TESTS_THREADS_H
#define TSLAB_TESTS_THREADS_H

#include "check.h"

#include <dirent.h>

static inline unsigned threads(void) {
  unsigned count = 0;
  DIR *const tasks = opendir("/proc/self/task");
  CHECK(tasks != NULL);
  while (readdir(tasks)) count++;
  closedir(tasks);
  return count - 2; /* . and .. */
}

#endif
