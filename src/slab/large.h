/* large: blocks above the largest size class, each a run of granules of its own.                    floor: slab
 *
 * What happens is counted in the numbers that the caller gives, mostly the running thread's. */
#ifndef TSLAB_SLAB_LARGE_H
#define TSLAB_SLAB_LARGE_H

#include "pages/pages.h"

/* Written by one thread where it is_own, else by any; read by anyone. */
struct large_counts {
  uint64_t allocations, frees, allocated_bytes, freed_bytes;
  bool is_own;
};

/* At least `size` bytes on a multiple of `alignment` (a power of two); *zero says whether they read as zero. NULL
 * without memory. size <= PTRDIFF_MAX. */
HIDDEN void *large_alloc(size_t size, size_t alignment, bool *zero, struct pages_how *how, struct large_counts *counts);

HIDDEN size_t large_granules(size_t size); /* of the run of such a block */
INLINE size_t large_run_bytes(size_t size) { return large_granules(size) << GRANULE_SHIFT; }

/* The run of a large block in use is the caller's from now on, who may free it, or have it serve another large block of
 * as many granules by large_again. */
HIDDEN void large_retire(struct run *run, struct large_counts *counts);
HIDDEN void *large_again(struct run *run, size_t size, struct large_counts *counts);

/* Makes the block at least `size` (> SMALL_MAX) bytes long, where it lies or elsewhere, contents kept; the block, or
 * NULL without memory and nothing changed. */
HIDDEN void *large_resize(struct run *run, size_t size, struct large_counts *counts);

/* Adds what is freed, and what was allocated. Who adds the former of all threads before the latter of any never finds
 * more freed than allocated. */
HIDDEN void large_add_freed(struct large_counts *sum, const struct large_counts *counts);
HIDDEN void large_add_allocated(struct large_counts *sum, const struct large_counts *counts);

#endif
