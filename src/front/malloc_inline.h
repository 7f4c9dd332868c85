/* entry: the bodies of the functions that callers reach, for each name that they reach them by.     floor: front */
#ifndef TSLAB_FRONT_MALLOC_INLINE_H
#define TSLAB_FRONT_MALLOC_INLINE_H

#include "front/front.h"

INLINE void *inline_malloc(size_t size) {
  if (UNLIKELY(size > DIRECT_MAX)) return front_malloc(size);
  struct heap *heap = current_heap;
  void *block = fast_pop(heap, class_tables()->direct[size], (uintptr_t)pages.base);
  return LIKELY(block != NULL) ? block : front_malloc_direct(size, heap);
}

INLINE void inline_free(void *p) {
  unsigned class = 0;
  struct heap *heap = NULL;
  switch (fast_push(p, &class, &heap)) {
  case FREED: return;
  case UNCLEAR: front_free_otherwise(p); return;
  case NOT_HERE: front_free(p, heap); return;
  case LIST_FULL: front_free_full(p); return;
  case NOT_A_BLOCK: front_free_interior(class); return;
  }
}

INLINE void *inline_calloc(size_t count, size_t size) {
  size_t bytes;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes))) bytes = SIZE_MAX; /* no memory for that */
  if (LIKELY(bytes <= DIRECT_MAX)) {
    void *block = fast_pop(current_heap, class_tables()->direct[bytes], (uintptr_t)pages.base);
    if (LIKELY(block != NULL)) return __builtin_memset(block, 0, bytes);
  }
  return front_calloc(bytes);
}

#endif
