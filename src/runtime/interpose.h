/* interpose: facts that only the shared library knows of its process.                               floor: runtime */
#ifndef TSLAB_RUNTIME_INTERPOSE_H
#define TSLAB_RUNTIME_INTERPOSE_H

#include "base/attr.h"
#include <pthread.h>
#include <stdbool.h>

/* Only the shared library has this. Returns true if the program's calls of malloc come to the library. It is not
 * HIDDEN, because compilers assume that a hidden function exists. */
bool libc_is_malloc(void) WEAK;

/* The functions of libc that make a thread and end it. Only the shared library has this. */
struct libc_threads {
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  int (*join)(pthread_t, void **);
  int (*detach)(pthread_t);
};
const struct libc_threads *interpose_libc_threads(void) WEAK;

#endif
