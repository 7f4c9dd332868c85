#include "misuse.h"

static char data[4096];

static void run(void) {
  free_elsewhere(culprit(data + 64));
}

MISUSE("a static array freed by another thread", NAMED, FOREIGN("free"));
