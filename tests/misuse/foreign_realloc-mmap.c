#include "misuse.h"

#include <sys/mman.h>

static void run(void) {
  char *memory = mmap(NULL, STACK_MOST + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK(tslab_realloc(culprit(memory + STACK_MOST), 100) == NULL);
}

MISUSE("realloc of mapped memory", NAMED, FOREIGN("realloc"));
