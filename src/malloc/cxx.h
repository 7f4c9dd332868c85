/* cxx: calls of operator new to the program's own C++ runtime.                                      floor: malloc
 *
 * There are two versions. A static link must name the runtime, or the linker leaves it out (cxx_static.c). The shared
 * library must not name it, because a process may have none, or get it with a library that it loads later
 * (cxx_shared.c). Threads: any. */
#ifndef TSLAB_MALLOC_CXX_H
#define TSLAB_MALLOC_CXX_H

#include "base/attr.h"
#include <stdbool.h>
#include <stddef.h>

typedef void (*new_handler)(void);

/* Returns the program's new_handler, or NULL if none is set. `is_caught_here`: the caller catches what the handler
 * throws, which works only if the runtime was loaded before this library (cxx_nothrow.cc). Otherwise this returns
 * NULL. */
HIDDEN new_handler cxx_new_handler(bool is_caught_here);

/* Throws bad_alloc for a request of `size` bytes. Without a C++ runtime it aborts, with a message. */
HIDDEN NORETURN void cxx_throw_bad_alloc(size_t size);

#endif
