/* locked: under mlockall, reserved address space does not become resident, and freed memory goes back. */
#include "memory.h"

#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

int main(void) {
  tslab_free(tslab_malloc(1));
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
    printf("skipped: mlockall is not allowed here\n");
    return SKIPPED;
  }
  CHECK_COUNT(resident_bytes(), <, 64 * MIB);
  const size_t sizes[] = {64, 1000, 20000, 1 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *list = NULL;
    const size_t before = resident_bytes();
    CHECK_COUNT(fill_list(&list, sizes[i], 48 * MIB), >=, 48 * MIB);
    CHECK_COUNT(resident_bytes(), >=, before + 40 * MIB);
    free_list(&list);
    tslab_purge();
    CHECK_COUNT(resident_bytes(), <=, before + 4 * MIB);
  }
  return 0;
}
