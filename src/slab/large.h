/* large: blocks above the largest size class, each a run of granules of its own.                    floor: slab */
#ifndef TSLAB_SLAB_LARGE_H
#define TSLAB_SLAB_LARGE_H

#include "pages/pages.h"

/* At least `size` bytes on a multiple of `alignment` (a power of two); *zero says whether they read as zero. NULL
 * without memory. size <= PTRDIFF_MAX. */
HIDDEN void *large_alloc(size_t size, size_t alignment, bool *zero, struct pages_how *how);

HIDDEN size_t large_run_bytes(size_t size); /* of the run of such a block */

/* `run` is the run of a large block in use. large_bury only counts: the run is the caller's. */
HIDDEN void large_free(struct run *run);
HIDDEN void large_bury(struct run *run);

/* Makes the block at least `size` (> SMALL_MAX) bytes long, where it lies or elsewhere, contents kept; the block, or
 * NULL without memory and nothing changed. */
HIDDEN void *large_resize(struct run *run, size_t size);

struct large_totals {
  uint64_t allocations, frees, live_bytes;
};
HIDDEN struct large_totals large_totals(void);

#endif
