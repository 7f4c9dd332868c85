#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_START);
  block[ODD + 700] = 1;
  tslab_free(block);
}

MISUSE("a guarded block at the start of its page written past its end", NAMED,
       "overflow: a write 700 bytes past the end of 0xADDR (" ODD_BLOCK "), found at its free" ALLOCATED,
       GUARDED_BY);
