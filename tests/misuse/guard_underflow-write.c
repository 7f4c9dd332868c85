#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_START);
  block[-1] = 1;
}

MISUSE("a guarded block written before its pages", FAULTS,
       ACCESS("underflow", WRITE, 1) "before 0xADDR (" ODD_BLOCK ")" ALLOCATED,
       GUARDED_BY);
