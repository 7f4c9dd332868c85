#include "misuse.h"

static void run(void) {
  void *block = culprit(tslab_aligned_alloc(4096, 4096));
  tslab_free(block);
  tslab_free(block);
}

MISUSE("an aligned block freed twice", NAMED, CHANGED("4096-byte class", "*"),
       .hardened = {NAMED, TWICE("4096-byte class")});
