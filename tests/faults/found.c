/* found: the defects that the sweeps found, each alone. */
#include "fault.h"

#include "../check.h"
#include "../stress/memory.h"

#include "epoch/epoch.h"
#include "heap/bump.h"

#include <sys/mman.h>

#define MIB      ((size_t)1 << 20)
#define FOR_EVER UINT64_MAX

/* An epoch that could not be made resident when it was opened charged its parent for what it did not get. */
static void charge_of_what_was_refused(void) {
  const tslab_epoch_options options = {sizeof options, "parent", 16 * MIB, 0, 0, 0};
  const tslab_epoch parent = tslab_epoch_open_with(&options);
  tslab_epoch_status status;
  CHECK(parent != 0);
  fault_set(1 << FAULT_MPROTECT, 0, FOR_EVER);
  const tslab_epoch_options wanted = {sizeof wanted, "child", 0, 15 * MIB, 0, parent};
  errno = 0;
  CHECK(tslab_epoch_open_with(&wanted) == 0 && errno == ENOMEM);
  CHECK_COUNT(fault_failed(), >, 0);
  fault_stop();
  CHECK_COUNT(tslab_epoch_info(parent, &status), ==, 0);
  CHECK_COUNT(status.charged_bytes, ==, 0);
  CHECK_COUNT(tslab_epoch_close(parent, NULL), ==, 0);
}

/* realloc of a large block was refused although smaller sizes held free what it needed. */
static void growth_from_what_others_hold(void) {
  enum { SMALL = 1000, COUNT = 2000 };
  static void *small[COUNT];
  void *rest = NULL, *blocked = NULL;
  for (unsigned i = 0; i < COUNT; i++) CHECK((small[i] = tslab_malloc(SMALL)) != NULL);
  unsigned char *block = tslab_malloc(100000);
  CHECK(block != NULL);
  memset(block, 0x3c, 100000);
  fault_set(1 << FAULT_MPROTECT, 0, FOR_EVER);
  fill_list(&blocked, 256 << 10, 64 * MIB);
  fill_list(&rest, 60000, 64 * MIB);
  for (unsigned i = 0; i < COUNT; i++) tslab_free(small[i]); /* they stay in the thread's lists */
  CHECK((block = tslab_realloc(block, 500000)) != NULL);
  for (unsigned i = 0; i < 100000; i++) CHECK(block[i] == 0x3c);
  errno = 0;
  CHECK(tslab_realloc(block, 64 * MIB) == NULL && errno == ENOMEM);
  CHECK(block[0] == 0x3c && block[99999] == 0x3c);
  CHECK_COUNT(fault_failed(), >, 0);
  fault_stop();
  tslab_free(block);
  free_list(&blocked);
  free_list(&rest);
}

static unsigned resident_pages(const void *chunk) {
  unsigned char pages_of[GRANULE / 4096];
  unsigned count = 0;
  CHECK(mincore((void *)(uintptr_t)chunk, GRANULE, pages_of) == 0);
  for (size_t i = 0; i < GRANULE / os_page_size; i++) count += pages_of[i] & 1;
  return count;
}

/* Dead pages of a chunk that could not be given back at once were not given back later either. */
static void dead_pages_are_tried_again(void) {
  enum { SIZE = 1008, COUNT = 64 }; /* of one chunk, which holds one more */
  unsigned char *blocks[COUNT];
  const tslab_epoch e = tslab_epoch_open("dead pages");
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  for (unsigned i = 0; i < COUNT; i++) CHECK((blocks[i] = tslab_malloc(SIZE)) != NULL);
  const unsigned char *const chunk = (void *)((uintptr_t)blocks[0] & ~(uintptr_t)(GRANULE - 1));
  for (unsigned i = 0; i < COUNT; i++) memset(blocks[i], 1, SIZE);
  CHECK(tslab_malloc(3 * SIZE) != NULL); /* in the next chunk: the first is full */
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  struct arena *const arena = &epoch_slot(e)->arena;
  for (unsigned i = 8; i < 40; i++) tslab_free(blocks[i]);
  const unsigned before = resident_pages(chunk);
  fault_set(1 << FAULT_PURGE, 0, FOR_EVER);
  CHECK_COUNT(bump_purge_dead(arena, UINT32_MAX), ==, 0);
  CHECK_COUNT(fault_failed(), >, 0);
  CHECK_COUNT(resident_pages(chunk), ==, before);
  fault_stop();
  for (unsigned i = 40; i < 56; i++) tslab_free(blocks[i]);
  const size_t purged = bump_purge_dead(arena, UINT32_MAX);
  CHECK_COUNT(purged, >=, 40 * SIZE);
  CHECK_COUNT(resident_pages(chunk), ==, before - purged / os_page_size);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
}

int main(void) {
  if (!fault_start()) {
    printf("skipped: no seccomp filter with a listener is allowed here\n");
    return SKIPPED;
  }
  charge_of_what_was_refused();
  growth_from_what_others_hold();
  dead_pages_are_tried_again();
  return 0;
}
