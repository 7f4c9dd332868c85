/* beyond_machine: a request for more memory than the machine has fails, where the kernel promises memory as it does by
 * default. A request for a large part of it succeeds, and so does what the program asks for after a failure. */
#include "../check.h"
#include "memory.h"

#include <sys/sysinfo.h>

#define GIB ((size_t)1 << 30)

static bool promises_by_guess(void) {
  FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
  int policy = -1;
  const bool has_read = file && fscanf(file, "%d", &policy) == 1;
  if (file) fclose(file);
  return has_read && policy == 0;
}

static size_t machine_bytes(void) {
  struct sysinfo info;
  CHECK(sysinfo(&info) == 0);
  return (info.totalram + info.totalswap) * info.mem_unit;
}

static void check_refused(void *block) {
  CHECK(block == NULL && errno == ENOMEM);
  errno = 0;
}

static void check_works(size_t size) {
  char *const block = tslab_malloc(size);
  CHECK(block != NULL);
  block[0] = block[size - 1] = 1;
  tslab_free(block);
}

int main(void) {
  if (!promises_by_guess()) return SKIPPED;
  const size_t all = machine_bytes(), more = all + GIB;
  check_works(all / 2);
  check_refused(tslab_malloc(more));
  check_refused(tslab_calloc(more / 4096, 4096));
  check_refused(tslab_aligned_alloc(4096, more / 4096 * 4096));

  const size_t sizes[] = {100, 100000, 4 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    char *block = tslab_malloc(sizes[i]);
    CHECK(block != NULL);
    block[sizes[i] - 1] = 7;
    check_refused(tslab_realloc(block, more));
    CHECK(block[sizes[i] - 1] == 7); /* still there, and it still grows */
    block = tslab_realloc(block, 2 * sizes[i]);
    CHECK(block != NULL && block[sizes[i] - 1] == 7);
    tslab_free(block);
  }

  char *grown = tslab_malloc(all / 3 * 2); /* a block that grows asks for what it grows by */
  CHECK(grown != NULL);
  grown[0] = 9;
  grown = tslab_realloc(grown, more);
  CHECK(grown != NULL && grown[0] == 9);
  tslab_free(grown);

  const tslab_epoch epoch = tslab_epoch_open("beyond");
  CHECK(epoch != 0);
  check_refused(tslab_epoch_malloc(epoch, more));
  CHECK(tslab_epoch_malloc(epoch, GIB / 4) != NULL);
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
  check_works(all / 2);
  return 0;
}
