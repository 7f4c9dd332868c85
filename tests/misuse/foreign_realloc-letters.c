#include "misuse.h"

static void run(void) {
  CHECK(tslab_realloc(culprit((void *)(uintptr_t)0x4141414141414141), 9) == NULL);
}

MISUSE("realloc of text as a pointer", NAMED, FOREIGN("realloc"));
