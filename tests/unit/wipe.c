/* wipe: no block of a retired slab keeps its key. Nothing else of the memory changes. Pages that the slab never used
 * stay absent. */
#include "unit.h"

#include "slab/slab.h"
#include "slab/wipe.h"
#include <sys/mman.h>

static struct run *slab;
static struct chain chain;

static void check_blocks(bool have_keys) {
  const size_t size = class_size(slab->class);
  unsigned count = 0;
  for (unsigned char *b = chain.head; b != CHAIN_END; b = block_next(b), count++) {
    CHECK(block_has_key(b) == have_keys && (have_keys || block_words(b)[1] == NULL));
    for (size_t i = 16; i < size; i++) CHECK_COUNT(b[i], ==, 0x5c);
  }
  CHECK_COUNT(count, ==, chain.count);
}

/* Makes a slab of which `wanted` blocks or more are linked. */
static void make_one(unsigned class, unsigned wanted) {
  pages_purge(UINT64_MAX, SIZE_MAX);
  slab = slab_new(class, 0, NULL);
  chain = slab_link(slab, wanted);
  for (char *b = chain.head; b != CHAIN_END; b = block_next(b)) memset(b + 16, 0x5c, class_size(class) - 16);
  check_blocks(true);
}

static void wipe_one(unsigned class, unsigned wanted, bool by_granule) {
  make_one(class, wanted);
  if (!by_granule) slab_wipe(slab);
  CHECK(!slab_retire(slab));
  if (by_granule) wipe_granules(slab, slab->granules);
  check_blocks(false);
  pages_free(slab, false);
}

static bool is_resident(void *page) {
  unsigned char resident[GRANULE / 4096]; /* under an emulated page size the kernel's pages are smaller */
  CHECK(mincore(page, os_page_size, resident) == 0);
  return resident[0] & 1;
}

static void unused_pages_stay_absent(void) {
  make_one(0, 1);
  char *const last = run_start(slab) + run_bytes(slab) - os_page_size;
  const bool was_used = is_resident(last); /* a page is as large as the slab */
  slab_wipe(slab);
  CHECK(is_resident(last) == was_used && was_used == (os_page_size == GRANULE));
  pages_free(slab, slab_retire(slab));
}

/* The blocks of a hole leave the list without their keys, as the purge may fail. */
static void holes_have_no_keys(void) {
  make_one(2, 1000000);
  void *tail = chain.head;
  for (void *b = chain.head; b != CHAIN_END; b = block_next(b)) tail = b;
  slab_push(slab, chain.head, tail, chain.count, &(struct slab_how){0});
  slab_purge_holes(slab);
  for (char *b = run_start(slab), *end = b + run_bytes(slab); b < end; b += 16) CHECK(!block_has_key(b));
  pages_free(slab, slab_retire(slab));
}

int main(void) {
  start_floors();
  for (unsigned class = 0; class < CLASSES; class++) {
    wipe_one(class, 1, false);
    wipe_one(class, 1000000, false);
    wipe_one(class, 1000000, true);
  }
  unused_pages_stay_absent();
  holes_have_no_keys();
  pages_check();
  return 0;
}
