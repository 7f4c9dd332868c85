/* cxx: what operator new asks of the program's own C++ runtime.                                     floor: malloc
 *
 * Twice: a static link must name it, or the linker leaves it out (cxx_static.c); the shared library may not, because a
 * process may have none, or get it with a library that it loads later (cxx_shared.c). Threads: any. */
#ifndef TSLAB_MALLOC_CXX_H
#define TSLAB_MALLOC_CXX_H

#include "base/attr.h"
#include <stdbool.h>
#include <stddef.h>

typedef void (*new_handler)(void);

/* NULL: none is set. Where the runtime came after the library, this catches nothing (cxx_nothrow.cc): a handler that
 * may throw through it is not to be called then. */
HIDDEN new_handler cxx_new_handler(bool is_caught_here);

/* For that many bytes there is no memory. Aborts, with a line that says so, where there is no C++ runtime. */
HIDDEN NORETURN void cxx_throw_bad_alloc(size_t size);

#endif
