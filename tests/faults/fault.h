/* fault: lets the n-th system call that the library under test makes fail, in the library as it ships.
 *
 * A seccomp filter hands the calls that can fail to a supervisor, a process of its own, which answers each with an
 * error or with "go on". The filter tells these calls from libc's by the address that they come from. Every child
 * inherits filter and supervisor, so a program starts them once and forks a child for each plan. The library calls
 * libc's munmap, so this replaces munmap by name.
 *
 * A floor of our own under src/pages would not do: libtslab.so contains its system calls, and the test runs the library
 * that ships. ptrace would not do: it stops whole processes, needs a case for each way in which they stop, and excludes
 * debuggers and leak detectors. */
#ifndef TSLAB_TESTS_FAULT_H
#define TSLAB_TESTS_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
  FAULT_MMAP,
  FAULT_MUNMAP,
  FAULT_PURGE,  /* madvise that gives memory back; for locked pages too */
  FAULT_ADVISE, /* every other madvise */
  FAULT_MREMAP,
  FAULT_MPROTECT,
  FAULT_MEMBARRIER,
  FAULT_FUTEX, /* waiting; waking too when a plan refuses everything */
  FAULT_KINDS
};
extern const char *const fault_names[FAULT_KINDS];

/* Calls of the kinds in the mask are numbered from 0; those from `from` on and below `to` fail. In shared memory: a
 * child may change it too, and the counts are those of all processes. */
struct fault_plan {
  _Atomic unsigned kinds; /* 1 << kind */
  _Atomic uint64_t from, to;
  _Atomic uint64_t calls;                  /* of the kinds in the mask */
  _Atomic uint64_t calls_of[FAULT_KINDS];  /* of each kind, in the mask or not */
  _Atomic uint64_t failed_of[FAULT_KINDS]; /* that failed */
};
extern struct fault_plan *fault;

/* False where this machine does not let us. Once; the caller has one thread. */
bool fault_start(void);

void fault_set(unsigned kinds, uint64_t from, uint64_t to); /* and starts counting anew */
void fault_stop(void);                                      /* no call fails from now on; the counts stay */
uint64_t fault_failed(void);                                /* calls of all kinds that failed */

#endif
