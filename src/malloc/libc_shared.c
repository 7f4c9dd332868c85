/* libc_shared: glibc's second names of its malloc, in libtslab.so.                                  floor: malloc
 *
 * Wrappers of malloc call them, and their blocks go to everybody's free. glibc keeps cfree for programs from before
 * 2.26. No header declares these. They call our own names, because malloc itself may be the wrapper. */
#include "tslab/tslab.h"

#define EXPORT __attribute__((visibility("default")))

#if defined(__GLIBC__)
#define NAME(type, name, parameters) \
  EXPORT type name parameters;       \
  type name parameters

NAME(void *, __libc_malloc, (size_t size)) { return tslab_malloc(size); }
NAME(void *, __libc_calloc, (size_t count, size_t size)) { return tslab_calloc(count, size); }
NAME(void *, __libc_realloc, (void *p, size_t size)) { return tslab_realloc(p, size); }
NAME(void *, __libc_memalign, (size_t alignment, size_t size)) { return tslab_memalign(alignment, size); }
NAME(void *, __libc_valloc, (size_t size)) { return tslab_valloc(size); }
NAME(void *, __libc_pvalloc, (size_t size)) { return tslab_pvalloc(size); }
NAME(void, __libc_free, (void *p)) { tslab_free(p); }
NAME(void, cfree, (void *p)) { tslab_free(p); }
#endif
