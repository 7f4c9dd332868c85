#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_END);
  block[ODD] = 1;
  tslab_free(block);
}

MISUSE("a guarded block written one byte past its end", NAMED,
       "overflow: a write 0 bytes past the end of 0xADDR (" ODD_BLOCK "), found at its free" ALLOCATED,
       GUARDED_BY);
