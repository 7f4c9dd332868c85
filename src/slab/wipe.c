/* wipe: see wipe.h.                                                                                 floor: slab */
#include "slab/wipe.h"

#include "slab/classes.h"

void wipe_granules(const struct run *first, size_t granules) {
  for (const struct run *run = first; run < first + granules; run++) {
    unsigned class = run->was - 1u;
    if (class >= CLASSES) continue;
    uintptr_t start = (uintptr_t)run_start(run);
    size_t size = class_size(class);
    wipe_blocks((char *)(start + (size - start % size) % size), (char *)start + GRANULE, size);
  }
}
