#include "misuse.h"

static void run(void) {
  void *block = culprit_of(16);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a 16-byte block freed twice", NAMED, CHANGED("16-byte class", "*"),
       .hardened = {NAMED, TWICE("16-byte class")});
