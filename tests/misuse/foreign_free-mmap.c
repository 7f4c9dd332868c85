#include "misuse.h"

#include <sys/mman.h>

static void run(void) {
  char *memory = mmap(NULL, STACK_MOST + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  tslab_free(culprit(memory + STACK_MOST));
}

MISUSE("mapped memory freed", NAMED, FOREIGN("free"));
