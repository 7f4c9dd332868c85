/* wipe: takes the keys out of memory that slabs had.                                                floor: slab
 *
 * A free block holds its key (slab/slab.h). No key may leave a slab. Otherwise a later block of other bounds could hold
 * one, and the program could copy it, with bytes that it never wrote, into a new block at the old address. This live
 * block would look free. So malloc takes the key out of the block that it returns, and a slab that retires is wiped
 * before its memory serves anything else. A purge does the same.
 *
 * Threads: the caller owns the memory. */
#ifndef TSLAB_SLAB_WIPE_H
#define TSLAB_SLAB_WIPE_H

#include "pages/pages.h"

/* Wipes blocks of `size` bytes, up to the one that starts before `end`. */
INLINE void wipe_blocks(char *block, const char *end, size_t size) {
  for (; block < end; block += size) ((void **)(void *)block)[1] = NULL;
}

/* Wipes the slabs that retired in these granules, among other runs. */
HIDDEN void wipe_granules(const struct run *first, size_t granules);

#endif
