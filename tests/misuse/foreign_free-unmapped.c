#include "misuse.h"

#include <sys/mman.h>

static void run(void) {
  char *memory = mmap(NULL, STACK_MOST + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK(munmap(memory, STACK_MOST + 4096) == 0);
  tslab_free(culprit(memory + STACK_MOST));
}

MISUSE("memory freed that is not there any more", NAMED, FOREIGN("free"));
