/* misuse.h: how a misuse test is written. A program is a table of cases; misuse.c runs each in a process of its own and
 * compares exactly what it writes to standard error, and how it ends.
 *
 * A case names the pointer it is about to misuse by `culprit`. Without an environment of its own a case runs twice: it
 * must abort after its one line, and under TSLAB_ON_MISUSE=report it must write the same line, count one misuse, go on,
 * and leave a sound heap, or abort where going on is not safe. */
#ifndef TSLAB_TESTS_MISUSE_H
#define TSLAB_TESTS_MISUSE_H

#include "../check.h"

#include <pthread.h>

struct misuse_case {
  const char *name;
  void (*run)(void);
  const char *expected;    /* standard error, each line ended; 0xADDR is the culprit, * any text */
  const char *environment; /* NAME=value for the one run; NULL for the usual two */
  int signal;              /* how that one run ends, or the second of the usual two: SIGABRT, or 0 for exit status 0 */
};

extern const struct misuse_case misuse_cases[]; /* ends with a case without a name */

/* Tells the runner the address and hides from the compiler what becomes of it. */
void *culprit(void *block);

/* The family's functions, each on another thread that is gone when they return. */
void free_elsewhere(void *block);
void realloc_elsewhere(void *block);

#endif
