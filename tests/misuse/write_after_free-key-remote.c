#include "misuse.h"

static void *writes(void *block) {
  return memset((char *)block + 8, 0x33, 8);
}

static void run(void) {
  char *block = culprit_of(SMALL);
  tslab_free(block);
  elsewhere(writes, block);
}

MISUSE("the second word of a freed block written by another thread", NAMED, CHANGED_AT_8(SMALL_TEXT),
       .hardened = {NAMED, WRITTEN(8)});
