#include "misuse.h"

static char data[4096];

static void run(void) {
  CHECK(tslab_realloc(culprit(data + 64), 100) == NULL);
}

MISUSE("realloc of a static array", NAMED, FOREIGN("realloc"));
