#include "misuse.h"

static char data[4096];

static void run(void) {
  tslab_free(culprit(data + 64));
}

MISUSE("a static array freed", NAMED, FOREIGN("free"));
