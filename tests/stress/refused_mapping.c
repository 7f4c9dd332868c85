/* refused_mapping: a sandbox refuses mmap with EPERM once its program runs. The heap grows in the addresses that the
 * library reserved at its start, and an epoch is served, too. */
#include "../epochs.h"
#include "filter.h"
#include "memory.h"

#define MIB ((size_t)1 << 20)

static void fill(size_t size, size_t bytes) {
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, size, bytes), >=, bytes);
  free_list(&list);
}

int main(void) {
  free(malloc(100));
  if (!answer_with(SYS_mmap, EPERM)) {
    printf("skipped: seccomp is not allowed here\n");
    return SKIPPED;
  }
  fill(100, 32 * MIB);
  fill(90 * MIB, 270 * MIB);
  const tslab_epoch epoch = open_epoch("refused_mapping", 0);
  CHECK(tslab_epoch_enter(epoch) == 0);
  fill(100, 8 * MIB);
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
  fill(100000, 128 * MIB);
  return 0;
}
