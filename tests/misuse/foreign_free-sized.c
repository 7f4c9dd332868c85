#include "misuse.h"

static char data[4096];

static void run(void) {
  tslab_free_sized(culprit(data + 64), 10);
}

MISUSE("free_sized of a static array", NAMED, FOREIGN("free_sized"));
