#include "misuse.h"

static void run(void) {
  char *block = culprit_of(LARGE);
  tslab_free(block);
  tslab_purge();
  memset(block, 0x33, SMALL);
  const char *others = tslab_calloc(1, LARGE);
  harm(others == block && others[20] == 0x33);
}

MISUSE("a freed large block written when its memory is with the kernel: a calloc that finds it is not zero", MISSED,
       NULL);
