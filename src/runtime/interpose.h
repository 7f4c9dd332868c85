/* interpose: functions that only the shared library has.                                            floor: runtime */
#ifndef TSLAB_RUNTIME_INTERPOSE_H
#define TSLAB_RUNTIME_INTERPOSE_H

#include "base/attr.h"
#include <stdbool.h>

/* Only the shared library has this. Returns true if the program's calls of malloc come to the library. It is not
 * HIDDEN, because compilers assume that a hidden function exists. */
bool libc_is_malloc(void) WEAK;

/* Only the shared library has this, too. Tells libc in a fork child, before any handler of the program's runs there,
 * that the child has one thread, if the program had one. */
void libc_begin_child(void) WEAK;

#endif
