#include "misuse.h"

static char data[4096];

static void run(void) {
  realloc_elsewhere(culprit(data + 64));
}

MISUSE("realloc of a static array by another thread", NAMED, FOREIGN("realloc"));
