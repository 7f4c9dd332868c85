/* sampled: a drawn block is of its class, in a slab that no heap owns, and is known to the profile until its free. */
#include "unit.h"

#include "heap/profile.h"
#include "heap/sampled.h"
#include "stats/profile.h"

enum { INTERVAL = 4096, BLOCKS = 200 };

int main(void) {
  static void *blocks[BLOCKS];
  tslab_free(tslab_malloc(1));
  CHECK(sampled_start(INTERVAL, true));
  for (unsigned class = 0; class < CLASSES; class += 3) {
    const uint64_t before = profile_totals().live;
    const uint64_t slabs = sampled_heap.bins[class].slabs;
    for (int i = 0; i < BLOCKS; i++) {
      blocks[i] = sampled_take(current_heap, class, class_size(class), INTERVAL);
      CHECK(blocks[i] != NULL && pages_pagemap()[granule_of(blocks[i])] == 0);
      CHECK_COUNT(tslab_malloc_usable_size(blocks[i]), ==, class_size(class));
      memset(blocks[i], 0x5a, class_size(class));
    }
    CHECK_COUNT(profile_totals().live, ==, before + BLOCKS);
    CHECK_COUNT(sampled_heap.bins[class].slabs, >, slabs);
    for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
    CHECK_COUNT(profile_totals().live, ==, before);
  }
  return 0;
}
