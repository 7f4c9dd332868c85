/* interpose: facts that only the shared library knows of its process.                               floor: runtime */
#ifndef TSLAB_RUNTIME_INTERPOSE_H
#define TSLAB_RUNTIME_INTERPOSE_H

#include "base/attr.h"
#include <stdbool.h>

/* Only the shared library has this. Returns true if the program's calls of malloc come to the library. It is not
 * HIDDEN, because compilers assume that a hidden function exists. */
bool libc_is_malloc(void) WEAK;

#endif
