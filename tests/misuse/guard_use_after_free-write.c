#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_ANY);
  tslab_free(block);
  block[7] = 1;
}

MISUSE("a guarded block written after its free", FAULTS,
       ACCESS("use after free", WRITE, 7) "into 0xADDR (" ODD_BLOCK ")" FREED_TOO,
       GUARDED_BY);
