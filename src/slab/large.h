/* large: blocks above the largest size class; each has a run of granules of its own.                floor: slab
 *
 * The caller passes the counters to count in, mostly the running thread's. */
#ifndef TSLAB_SLAB_LARGE_H
#define TSLAB_SLAB_LARGE_H

#include "pages/pages.h"

/* Thread: only the owner writes counts that are `is_own`, any thread the others; all threads read. */
struct large_counts {
  uint64_t allocations, frees, allocated_bytes, freed_bytes;
  bool is_own;
};

/* Returns at least `size` bytes on a multiple of `alignment` (a power of two), or NULL without memory. The
 * block reads as zero if how->wants_zero. size <= PTRDIFF_MAX. */
HIDDEN void *large_alloc(size_t size, size_t alignment, struct pages_how *how, struct large_counts *counts);

HIDDEN size_t large_granules(size_t size); /* granules of a run for a block of `size` bytes */
INLINE size_t large_run_bytes(size_t size) { return large_granules(size) << GRANULE_SHIFT; }

/* Retires a large block in use and leaves its run to the caller. The caller frees the run, or calls large_again to make
 * it another large block of as many granules. */
HIDDEN void large_retire(struct run *run, struct large_counts *counts);
HIDDEN void *large_again(struct run *run, size_t size, struct large_counts *counts);

/* Makes the block at least `size` (> SMALL_MAX) bytes long, in place or at another address, and keeps its contents.
 * Returns the block; without memory it returns NULL and changes nothing. */
HIDDEN void *large_resize(struct run *run, size_t size, struct large_counts *counts);

/* Copies the contents of a large block. Where a page is zero in both places, this writes nothing, because the page may
 * not be resident and a write would make it so. */
HIDDEN void large_copy(char *to, const char *from, size_t bytes);

/* Add the frees, and the allocations, to a sum. A caller that adds the frees of all threads before the allocations of
 * any never finds more frees than allocations. */
HIDDEN void large_add_freed(struct large_counts *sum, const struct large_counts *counts);
HIDDEN void large_add_allocated(struct large_counts *sum, const struct large_counts *counts);

#endif
