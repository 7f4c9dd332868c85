#include "misuse.h"

static void run(void) {
  char local[64];
  tslab_free(culprit(local + 16));
}

MISUSE("a local variable freed", NAMED, STACK("free"));
