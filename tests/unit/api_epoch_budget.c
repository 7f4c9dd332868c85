/* Budgets bound an epoch's memory, and prefault gives it memory from the start. */
#include "../epochs.h"

#include <sys/resource.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

static tslab_epoch open_budget(uint64_t bytes, tslab_epoch parent) {
  const tslab_epoch e = open_options((tslab_epoch_options){.label = "budget", .budget_bytes = bytes, .parent = parent});
  CHECK(e != 0);
  return e;
}

/* Allocates blocks of `size` until the epoch refuses one, and links them as a list. Returns their number. */
static uint64_t exhaust(tslab_epoch e, size_t size, void **list) {
  void **block;
  uint64_t count = 0;
  errno = 0;
  while ((block = (void **)tslab_epoch_malloc(e, size)) != NULL) {
    memset(block, 0x11, size);
    *block = *list;
    *list = block;
    CHECK_COUNT(++count, <, 1000000);
  }
  CHECK_COUNT(errno, ==, ENOMEM);
  return count;
}

static void free_all(void **list) {
  while (*list) {
    void *const block = *list;
    *list = *(void **)block;
    tslab_free(block);
  }
}

static void others_go_on(tslab_epoch other) {
  tslab_free(block_in(other, 100));
  tslab_free(block_in(other, MIB));
  tslab_free(block_in(0, MIB));
}

static void a_budget_is_kept(void) {
  const uint64_t budgets[] = {64 * KIB, 65 * KIB, 200 * KIB, MIB, 5 * MIB};
  const size_t sizes[] = {16, 100, 1500, 9000, 60000};
  const tslab_epoch other = open_epoch("without", 0);
  for (size_t i = 0; i < 5; i++)
    for (size_t j = 0; j < 5; j++) {
      void *list = NULL;
      const tslab_epoch e = open_budget(budgets[i], 0);
      const uint64_t count = exhaust(e, sizes[j], &list);
      tslab_epoch_status status = status_of(e);
      CHECK_COUNT(count, >, 0); /* the least budget holds the least epoch */
      CHECK_COUNT(status.budget_bytes, ==, budgets[i]);
      CHECK_COUNT(status.committed_bytes, <=, budgets[i]);
      CHECK_COUNT(status.live_blocks, ==, count);
      CHECK_COUNT(status.refused, >=, 1);
      /* The budget was used: large slabs may leave a rest. */
      if (budgets[i] >= MIB) CHECK_COUNT(count * sizes[j], >=, budgets[i] / 2);
      const uint64_t refused = status.refused;
      errno = 0;
      CHECK(tslab_epoch_calloc(e, 1, 6 * MIB) == NULL && errno == ENOMEM);
      errno = 0;
      CHECK(tslab_epoch_aligned_alloc(e, 4096, 6 * MIB) == NULL && errno == ENOMEM);
      CHECK_COUNT(status_of(e).refused, ==, refused + 2);
      others_go_on(other);
      free_all(&list);
      tslab_free(block_in(e, sizes[j])); /* there is room again */
      CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
      check_stale(e);
    }
  CHECK_COUNT(tslab_epoch_close(other, NULL), ==, 0);
}

/* Plain malloc inside the scope fails as well, and realloc leaves its block. */
static void malloc_in_its_scope(void) {
  void *list = NULL;
  const tslab_epoch e = open_budget(256 * KIB, 0);
  char *block = block_in(e, 1000);
  exhaust(e, 1000, &list);
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  errno = 0;
  CHECK(tslab_malloc(100000) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_malloc(1000) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_realloc(block, 100000) == NULL && errno == ENOMEM);
  CHECK_COUNT(tslab_epoch_enter(0), ==, 0);
  tslab_free(block_here(100000));
  CHECK_COUNT(tslab_epoch_leave(0), ==, 0);
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  CHECK_COUNT(status_of(e).diverted, ==, 0);
  for (int i = 0; i < 1000; i++) CHECK(block[i] == 0x5C);
  free_all(&list);
  tslab_free(block);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  check_stale(e);
}

static void a_childs_bytes_are_the_parents_too(void) {
  void *mine = NULL, *its = NULL, *others = NULL;
  const tslab_epoch parent = open_budget(MIB, 0), child = open_budget(0, parent), sibling = open_budget(0, parent);
  const tslab_epoch grandchild = open_budget(0, child);
  CHECK(exhaust(grandchild, 5000, &its) > 0);
  CHECK_COUNT(status_of(grandchild).refused, >=, 1);
  CHECK_COUNT(status_of(parent).charged_bytes, ==, status_of(grandchild).committed_bytes);
  CHECK_COUNT(status_of(child).charged_bytes, ==, status_of(grandchild).committed_bytes);
  CHECK_COUNT(status_of(child).committed_bytes, ==, 0);
  CHECK_COUNT(status_of(parent).charged_bytes, <=, MIB);
  exhaust(parent, 5000, &mine);
  exhaust(sibling, 5000, &others);
  CHECK_COUNT(status_of(parent).charged_bytes, <=, MIB);
  CHECK_COUNT(status_of(parent).charged_bytes, ==,
              status_of(parent).committed_bytes + status_of(child).charged_bytes + status_of(sibling).charged_bytes);
  others_go_on(0);
  free_all(&its); /* the child's end returns its bytes to the parent */
  CHECK_COUNT(tslab_epoch_close(child, NULL), ==, 0);
  CHECK_COUNT(status_of(parent).charged_bytes, ==,
              status_of(parent).committed_bytes + status_of(sibling).charged_bytes);
  CHECK(exhaust(sibling, 5000, &others) > 50);
  free_all(&mine);
  free_all(&others);
  CHECK_COUNT(tslab_epoch_close(parent, NULL), ==, 0);
  check_stale(parent);
}

/* 0 is no limit for the child alone; a child's own limit holds though the parent has room. */
static void a_childs_own_budget(void) {
  void *list = NULL;
  const tslab_epoch parent = open_budget(10 * MIB, 0), child = open_budget(128 * KIB, parent);
  exhaust(child, 1000, &list);
  CHECK_COUNT(status_of(child).committed_bytes, <=, 128 * KIB);
  CHECK_COUNT(status_of(parent).refused, ==, 0);
  others_go_on(parent);
  free_all(&list);
  CHECK_COUNT(tslab_epoch_close(parent, NULL), ==, 0);
  check_stale(child);
}

static long faults(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_minflt;
}

static void prefault(void) {
  const tslab_epoch e = open_options((tslab_epoch_options){.label = "ready", .prefault_bytes = 4 * MIB});
  CHECK(e != 0);
  CHECK_COUNT(status_of(e).committed_bytes, >=, 4 * MIB);
  CHECK_COUNT(status_of(e).live_blocks, ==, 0);
  void *list = NULL;
  CHECK_COUNT(tslab_epoch_enter(e), ==, 0);
  const long before = faults();
  for (int i = 0; i < 2 * MIB / 1024; i++) {
    void **const block = block_here(1000);
    *block = list;
    list = block;
  }
  const long faulted = faults() - before;
  CHECK_COUNT(tslab_epoch_leave(e), ==, 0);
  if (!SANITIZED) CHECK_COUNT(faulted, <, 2 * MIB / 4096 / 8); /* the library's tables; the pages were 512 */
  free_all(&list);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  check_stale(e);
}

static void prefault_within_the_budget(void) {
  const tslab_epoch parent = open_budget(MIB, 0);
  errno = 0;
  CHECK(open_options((tslab_epoch_options){.budget_bytes = MIB, .prefault_bytes = 2 * MIB}) == 0);
  CHECK_COUNT(errno, ==, ENOMEM);
  errno = 0;
  CHECK(open_options((tslab_epoch_options){.prefault_bytes = 2 * MIB, .parent = parent}) == 0);
  CHECK_COUNT(errno, ==, ENOMEM);
  CHECK_COUNT(status_of(parent).charged_bytes, ==, 0); /* the refused call left nothing behind */
  /* More than any machine has: the call is refused at once, before it touches a page. */
  const uint64_t beyond[] = {UINT64_MAX, UINT64_MAX - 65535, UINT64_C(1) << 63, UINT64_C(1) << 48};
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
    errno = 0;
    CHECK(open_options((tslab_epoch_options){.prefault_bytes = beyond[i], .budget_bytes = UINT64_MAX - 1}) == 0);
    CHECK_COUNT(errno, ==, ENOMEM);
  }
  const tslab_epoch e = open_options((tslab_epoch_options){.prefault_bytes = MIB / 2, .parent = parent});
  CHECK(e != 0);
  CHECK_COUNT(status_of(parent).charged_bytes, >=, MIB / 2);
  CHECK_COUNT(tslab_epoch_close(parent, NULL), ==, 0);
  check_stale(e);
}

int main(void) {
  a_budget_is_kept();
  malloc_in_its_scope();
  a_childs_bytes_are_the_parents_too();
  a_childs_own_budget();
  prefault();
  prefault_within_the_budget();
  return 0;
}
