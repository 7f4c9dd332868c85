/* interpose: what only the shared library knows of its process.                                     floor: runtime */
#ifndef TSLAB_RUNTIME_INTERPOSE_H
#define TSLAB_RUNTIME_INTERPOSE_H

#include "base/attr.h"
#include <stdbool.h>

/* In the shared library only: returns true if the program's calls of malloc come to it. Not HIDDEN, for compilers take
 * a hidden function to be there. */
bool libc_is_malloc(void) WEAK;

#endif
