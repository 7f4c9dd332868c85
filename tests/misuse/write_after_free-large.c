#include "misuse.h"

static void run(void) {
  char *block = culprit_of(LARGE);
  tslab_free(block);
  memset(block, 0x33, SMALL);
  const char *others = tslab_malloc(LARGE);
  harm(others == block && others[20] == 0x33);
}

MISUSE("a freed large block written", MISSED, NULL);
