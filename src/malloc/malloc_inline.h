/* malloc_inline: the bodies of malloc, free and calloc, for all their names.                        floor: malloc */
#ifndef TSLAB_MALLOC_MALLOC_INLINE_H
#define TSLAB_MALLOC_MALLOC_INLINE_H

#include "malloc/slow.h"

INLINE void *inline_malloc(size_t size) {
  if (UNLIKELY(size > DIRECT_MAX)) return slow_malloc(size);
  struct heap *heap = current_heap;
  void *block = fast_pop(heap, class_tables_by_key(pages.key)->direct[size], pages.key);
  return LIKELY(block != NULL) ? block : slow_malloc_direct(size, heap);
}

INLINE void inline_free(void *p) {
  struct fast_seen seen = {0};
  switch (fast_push(p, &seen)) {
  case FREED: return;
  case UNCLEAR: slow_free_unclear(p); return;
  case NOT_HERE: slow_free(p, seen.heap, seen.owner); return;
  case LIST_FULL: slow_free_full(p); return;
  case NOT_A_BLOCK: slow_free_interior(seen.class); return;
  }
}

INLINE void *inline_calloc(size_t count, size_t size) {
  size_t bytes;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes))) bytes = SIZE_MAX; /* too much for any memory */
  if (LIKELY(bytes <= DIRECT_MAX)) {
    void *block = fast_pop(current_heap, class_tables_by_key(pages.key)->direct[bytes], pages.key);
    if (LIKELY(block != NULL)) return __builtin_memset(block, 0, bytes);
  }
  return slow_calloc(bytes);
}

#endif
