/* slow: the slow paths of malloc and free, which the inlined fast ones leave to.                    floor: malloc */
#ifndef TSLAB_MALLOC_SLOW_H
#define TSLAB_MALLOC_SLOW_H

#include "heap/fast.h"
#include "slab/large.h"
#include <errno.h>

HIDDEN void *slow_malloc(size_t size);
HIDDEN void *slow_malloc_direct(size_t size, struct heap *heap); /* current_heap; size <= DIRECT_MAX */
/* `heap` is current_heap, and not the owner of p's granule, which the pagemap's entry names; 0: no list takes p. */
HIDDEN void slow_free(void *p, struct heap *heap, pagemap_entry owner);
HIDDEN void slow_free_unclear(void *p);
HIDDEN void slow_free_full(void *p);
HIDDEN COLD void slow_free_interior(unsigned class);

/* Returns `size` bytes on a multiple of `alignment` (a power of two), or NULL and ENOMEM without memory. */
HIDDEN void *slow_aligned(size_t alignment, size_t size);
HIDDEN void *slow_calloc(size_t size);

INLINE void *no_memory(void) {
  errno = ENOMEM;
  return NULL;
}

/* Returns the run of a block in use that starts at p, or NULL after it has reported the misuse by `call`. */
HIDDEN struct run *run_of_live_block(const char *call, void *p);
HIDDEN size_t block_usable_size(const struct run *run, const void *p); /* usable bytes of that block */

/* Allocates in the epoch of that slot, or in epoch 0 if that one is closing. realloc moves blocks there. */
HIDDEN void *malloc_in_epoch(uint32_t index, size_t size);

#endif
