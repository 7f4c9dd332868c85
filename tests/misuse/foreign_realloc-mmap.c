#include "misuse.h"

#include <sys/mman.h>

static void run(void) {
  void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK(tslab_realloc(culprit(memory), 100) == NULL);
}

MISUSE("realloc of mapped memory", NAMED, FOREIGN("realloc"));
