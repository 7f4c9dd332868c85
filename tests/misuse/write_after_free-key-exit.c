#include "misuse.h"

static void run(void) {
  char *block = culprit_of(SMALL);
  tslab_free(block);
  memset(block + 8, 0x33, 8);
}

MISUSE("the second word of a freed block written, the last thing that a process does", NAMED,
       CHANGED_AT_8(SMALL_TEXT),
       .leaves = true,
       .hardened = {NAMED, WRITTEN(8)});
