/* scavenger.h: waits until the library has its thread, in a program that has one thread itself. */
#ifndef TSLAB_TESTS_SCAVENGER_H
#define TSLAB_TESTS_SCAVENGER_H

#include "../check.h"
#include "memory.h"

#include <dirent.h>
#include <stdbool.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

/* Returns the id of a thread beside the first one, or 0. Uses no memory, and so no slow path. */
static pid_t other_thread(void) {
  char names[1024];
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  pid_t other = 0;
  CHECK(folder >= 0);
  const ssize_t length = getdents64(folder, names, sizeof names);
  for (ssize_t at = 0; at < length; at += ((struct dirent64 *)(void *)(names + at))->d_reclen) {
    const pid_t thread = atoi(((struct dirent64 *)(void *)(names + at))->d_name);
    if (thread != 0 && thread != getpid()) other = thread;
  }
  CHECK(close(folder) == 0);
  return other;
}

static pid_t make_scavenger(void) {
  void *list = NULL;
  for (int i = 0; i < 100 && other_thread() == 0; i++) {
    CHECK_COUNT(fill_list(&list, 100000, 8 * MIB), >=, 8 * MIB);
    free_list(&list);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  CHECK(other_thread() != 0);
  return other_thread();
}

#endif
