/* libc: the C library's names of these calls. Left out of libtslab_prefixed.a.                      floor: malloc */
#include "malloc/malloc_inline.h"
#include "tslab/tslab.h"
#include <malloc.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT HOT void *malloc(size_t size) { return inline_malloc(size); }
EXPORT HOT void free(void *p) { inline_free(p); }
EXPORT HOT void *calloc(size_t count, size_t size) { return inline_calloc(count, size); }
EXPORT void *realloc(void *p, size_t size) { return tslab_realloc(p, size); }
EXPORT void *reallocarray(void *p, size_t count, size_t size) { return tslab_reallocarray(p, count, size); }
EXPORT void *aligned_alloc(size_t alignment, size_t size) { return tslab_aligned_alloc(alignment, size); }
EXPORT int posix_memalign(void **out, size_t alignment, size_t size) {
  return tslab_posix_memalign(out, alignment, size);
}
EXPORT void *memalign(size_t alignment, size_t size) { return tslab_memalign(alignment, size); }
EXPORT void *valloc(size_t size) { return tslab_valloc(size); }
EXPORT size_t malloc_usable_size(void *p) { return tslab_malloc_usable_size(p); }

/* Not every C library's headers declare these yet. */
EXPORT void free_sized(void *p, size_t size);
EXPORT void free_aligned_sized(void *p, size_t alignment, size_t size);
void free_sized(void *p, size_t size) { tslab_free_sized(p, size); }
void free_aligned_sized(void *p, size_t alignment, size_t size) { tslab_free_aligned_sized(p, alignment, size); }

/* Names that only glibc has. Programs of another C library do not use them, and its headers do not declare them. */
#if defined(__GLIBC__)

EXPORT void *pvalloc(size_t size) { return tslab_pvalloc(size); }
EXPORT int malloc_trim(size_t pad) { return tslab_malloc_trim(pad); }
EXPORT int malloc_info(int options, FILE *stream) { return tslab_malloc_info(options, stream); }
EXPORT void malloc_stats(void) { tslab_malloc_stats(); }
EXPORT int mallopt(int parameter, int value) { return tslab_mallopt(parameter, value); }

EXPORT struct mallinfo2 mallinfo2(void) {
  struct tslab_mallinfo from = tslab_mallinfo2();
  return (struct mallinfo2){
      .arena = from.arena, .ordblks = from.ordblks, .smblks = from.smblks, .hblks = from.hblks, .hblkhd = from.hblkhd,
      .usmblks = from.usmblks, .fsmblks = from.fsmblks, .uordblks = from.uordblks, .fordblks = from.fordblks,
      .keepcost = from.keepcost,
  };
}

/* The fields are ints, as in glibc; larger values wrap, as they do there. */
EXPORT struct mallinfo mallinfo(void) {
  struct tslab_mallinfo from = tslab_mallinfo2();
  return (struct mallinfo){
      .arena = (int)from.arena, .ordblks = (int)from.ordblks, .smblks = (int)from.smblks, .hblks = (int)from.hblks,
      .hblkhd = (int)from.hblkhd, .usmblks = (int)from.usmblks, .fsmblks = (int)from.fsmblks,
      .uordblks = (int)from.uordblks, .fordblks = (int)from.fordblks, .keepcost = (int)from.keepcost,
  };
}

#endif
