#include "misuse.h"

static void run(void) {
  char *block = culprit_of(SMALL);
  tslab_free(block);
  memset(block + 16, 0x33, SMALL - 16);
  const char *others = tslab_malloc(SMALL);
  harm(others == block && others[20] == 0x33);
}

MISUSE("a freed block written past its first two words: whoever has it next finds that", MISSED, NULL,
       .hardened = {NAMED, WRITTEN(16)});
