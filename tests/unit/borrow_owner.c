/* borrow_owner: another thread borrows from a slab, which then is common, while the slab's thread is in a free of one
 * of its blocks: between the fast path, which found the list full, and the slow one. */
#include "unit.h"

#include "heap/borrow.h"
#include "malloc/slow.h"

enum { SIZE = 96, BLOCKS = 4000 };

static void *blocks[BLOCKS];

/* As the fast path does if the list has no room. */
static void find_full(unsigned class) {
  uint32_t *const now = &current_heap->count[class].now;
  STORE_RACING(*now, *now - (ROOM_ONE - 1));
}

int main(void) {
  const unsigned class = class_of(SIZE);
  for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(SIZE)) != NULL);
  for (int i = 0; i < BLOCKS; i += 2) tslab_free(blocks[i]);
  tslab_purge(); /* the lists go to their slabs */
  void *const borrowed = borrow_anywhere(&empty_heap, class);
  CHECK(borrowed != NULL);
  struct run *const slab = pages_run_of(borrowed);
  CHECK(atomic_load(&slab->heap) == &common_heap);
  for (int i = 1; i < BLOCKS; i += 2) {
    if (pages_run_of(blocks[i]) == slab) {
      find_full(class);
      slow_free_full(blocks[i]);
    } else {
      tslab_free(blocks[i]);
    }
  }
  tslab_free(borrowed);
  tslab_stats_global all;
  CHECK(tslab_stats(&all, sizeof all) == 0);
  CHECK_COUNT(all.allocations, >=, all.frees);
  return 0;
}
