#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL - 10);
  memset(block, 0x33, SMALL);
  tslab_free(block);
  harm(true);
}

MISUSE("a write past what was asked for, within what the block has", MISSED, NULL);
