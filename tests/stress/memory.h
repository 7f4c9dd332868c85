/* memory.h: how much memory the process holds, and lists that fill it. */
#ifndef TSLAB_TESTS_MEMORY_H
#define TSLAB_TESTS_MEMORY_H

#include "../check.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* CTest's SKIP_RETURN_CODE: this machine does not let us ask. */
#define SKIPPED 77

/* Resident bytes now, as the kernel counts them when asked for detail (VmRSS lags by up to 64 pages a thread); read
 * without stdio, which would allocate. */
static inline size_t resident_bytes(void) {
  char text[4096], *line;
  const int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0);
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  CHECK(length > 0);
  text[length] = 0;
  CHECK((line = strstr(text, "\nRss:")) != NULL);
  return strtoul(line + 5, NULL, 10) * 1024;
}

/* Makes this process anew under a limit on addresses, if it has none. */
static inline void be_born_under(size_t bytes, char **argv) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  if (limit.rlim_cur != RLIM_INFINITY) return;
  limit.rlim_cur = bytes;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  execv("/proc/self/exe", argv);
  CHECK(!"execv");
}

/* Waits for a child's end. Returns false if it was skipped; any other end than 0 fails the test. */
static inline bool child_passed(pid_t child) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  const bool is_skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
  if (!is_skipped) CHECK_COUNT(status, ==, 0);
  return !is_skipped;
}

/* Allocates blocks of `size` until there are `total` bytes of them or no more can be had, and writes to each. They form
 * a list in *list. Returns their bytes. */
static inline size_t fill_list(void **list, size_t size, size_t total) {
  size_t bytes = 0;
  void **block;
  while (bytes < total && (block = (void **)tslab_malloc(size))) {
    memset(block, 0x66, size);
    *block = *list;
    *list = block;
    bytes += size;
  }
  return bytes;
}

static inline void free_list(void **list) {
  while (*list) {
    void *const block = *list;
    *list = *(void **)block;
    tslab_free(block);
  }
}

#endif
