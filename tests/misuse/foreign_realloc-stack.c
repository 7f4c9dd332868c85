#include "misuse.h"

static void run(void) {
  char local[64];
  CHECK(tslab_realloc(culprit(local + 16), 100) == NULL);
}

MISUSE("realloc of a local variable", NAMED, STACK("realloc"));
