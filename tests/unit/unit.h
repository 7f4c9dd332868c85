/* unit.h: shared code of the tests of src's own headers. They link libtslab_prefixed.a, whose hidden names they see.
 * The library's constructor is part of a test only if the test, or a function that it calls, needs the runtime
 * floor. */
#ifndef TSLAB_TESTS_UNIT_H
#define TSLAB_TESTS_UNIT_H

#include "../check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "os/os.h"
#include "os/ticks.h"
#include "slab/classes.h"

/* A sanitizer's shadow is larger than the limits that a test may want to set. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Returns true under qemu-user: it answers for the kernel about advice and limits of memory, and claims effects that
   did not happen. The kernel finds no pages there. */
static inline bool emulated(void) {
  return madvise((void *)(uintptr_t)GRANULE, GRANULE, MADV_COLD) == 0;
}

/* The floors below the heap, without the front. */
static inline void start_floors(void) {
  os_start();
  ticks_start();
  CHECK(pages_start());
  classes_start();
}

/* Puts the output of `run` to standard error into `text`. Returns the number of writes: the socket keeps them apart,
   and an emulator's message about a signal does not count. Leaves errno as `run` left it. */
static inline int hear(void (*run)(void), char *text, size_t capacity) {
  int pair[2], writes = 0;
  const int kept = dup(2);
  CHECK(kept >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  dup2(pair[1], 2);
  run();
  const int left = errno;
  dup2(kept, 2);
  size_t length = 0;
  for (ssize_t got; (got = recv(pair[0], text + length, capacity - 1 - length, MSG_DONTWAIT)) > 0;) {
    if (got > 5 && memcmp(text + length, "qemu:", 5) == 0) continue;
    length += (size_t)got;
    writes++;
  }
  text[length] = 0;
  close(pair[0]), close(pair[1]), close(kept);
  errno = left;
  return writes;
}

/* Runs `run` in a process of its own. Returns the status that waitpid gives. */
static inline int in_child(void (*run)(void)) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    run();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

#endif
